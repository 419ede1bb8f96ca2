package sandbox

import "fmt"

// Policy is what a program may access. The zero value grants nothing.
type Policy struct {
	// Entries grant and deny access to paths, in any order. The entry for the longest
	// path wins. For the same path, AccessNone wins over AccessWrite, and that over
	// AccessRead. Paths without an entry are not accessible.
	Entries []Entry
	// Unrestricted allows access to all files. Entries must be empty then.
	Unrestricted bool
	// GlobDepth is how many directory levels a glob is expanded below its fixed part.
	// 0 means [DefaultGlobDepth].
	GlobDepth int
	// WorkspaceRoots are absolute directories, to which SpecialProjectRoots refers.
	WorkspaceRoots []string
	// Network is the access to the network.
	Network Network
}

// Entry grants or denies access to a path and everything below it. Exactly one of Path,
// Glob and Special is set.
type Entry struct {
	// Path is an absolute path.
	Path string
	// Glob is an absolute pattern in the syntax of path.Match, in which the component
	// "**" matches any number of components. It requires AccessNone, and denies what
	// matches at the start of the program.
	Glob string
	// Special is a path that depends on the machine.
	Special Special
	// SubPath is a path relative to SpecialProjectRoots. Empty means the roots
	// themselves.
	SubPath string
	// Access is the access to the path. It is required.
	Access Access
	// SkipMissing ignores the entry if its path does not exist. Otherwise a missing
	// path cannot be created by the program if the entry grants less than the
	// directory above it.
	SkipMissing bool
}

// Access is the access to files. The zero value is invalid.
type Access uint8

// The values of Access. Each includes the one before.
const (
	AccessNone  Access = iota + 1 // no access
	AccessRead                    // read and execute
	AccessWrite                   // read, execute and write
)

func (a Access) String() string {
	switch a {
	case AccessNone:
		return "none"
	case AccessRead:
		return "read"
	case AccessWrite:
		return "write"
	}
	return fmt.Sprintf("access(%d)", uint8(a))
}

// Network is the access to the network.
type Network uint8

// The values of Network. The zero value is restricted.
const (
	NetworkRestricted Network = iota // no socket can be used but stream socket pairs
	NetworkEnabled                   // all that the user may do
)

// Special is a path that Resolve determines.
type Special uint8

// The values of Special.
const (
	SpecialRoot         Special = iota + 1 // the root of the file system
	SpecialMinimal                         // what most programs need: /usr, /bin, /lib, /etc and the like
	SpecialProjectRoots                    // every workspace root
	SpecialTmpdir                          // TMPDIR of the program's environment, if set
	SpecialSlashTmp                        // /tmp
)

// minimalPaths are the paths of SpecialMinimal. Missing ones are ignored.
var minimalPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/run/current-system/sw",
}

// ResolveOptions are the inputs of [Policy.Resolve] besides the policy.
type ResolveOptions struct {
	// TmpDir is TMPDIR of the program's environment. If it is empty, entries with
	// SpecialTmpdir are ignored.
	TmpDir string
	// Within is the plan to which the result will be narrowed, or nil. Paths that it
	// does not grant are not examined, so that neither the plan nor an error reveals
	// what exists there. Entries that refer to such a path are ignored.
	Within *Plan
}

// Limits of a policy.
const (
	// DefaultGlobDepth is the default of Policy.GlobDepth.
	DefaultGlobDepth = 8
	// MaxGlobDepth is the maximum of Policy.GlobDepth.
	MaxGlobDepth = 64
	// MaxPaths is the maximum number of paths that a policy may resolve to. Each costs
	// a mount.
	MaxPaths = 1000
	// MaxGlobEntries is the maximum number of directory entries that the globs of a
	// policy may examine.
	MaxGlobEntries = 200_000
)
