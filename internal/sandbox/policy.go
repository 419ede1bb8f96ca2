package sandbox

import "fmt"

// Policy says what a program may touch. The zero value grants nothing but the right to run.
type Policy struct {
	// Entries grant and deny places, in any order. The most specific place wins; of equal ones AccessNone wins over
	// AccessWrite, and that over AccessRead. What no entry covers is not accessible.
	Entries []Entry
	// Unrestricted lifts every restriction of files; Entries must be empty then.
	Unrestricted bool
	// GlobDepth is how many directories below its fixed part a glob is expanded. 0: [DefaultGlobDepth].
	GlobDepth int
	// WorkspaceRoots are the absolute directories that SpecialProjectRoots stands for.
	WorkspaceRoots []string
	// Network says whether the network is reached.
	Network Network
}

// Entry grants or denies access to one place and all below it. Exactly one of Path, Glob and Special is set.
type Entry struct {
	// Path is absolute.
	Path string
	// Glob is an absolute pattern of path.Match, in which a component "**" stands for any number of them. Only with
	// AccessNone. What matches at the start is denied.
	Glob string
	// Special is a place that differs from machine to machine.
	Special Special
	// SubPath is a relative path below SpecialProjectRoots. Empty: the roots themselves.
	SubPath string
	// Access is what is granted. Zero is an error.
	Access Access
	// SkipMissing leaves the entry out if its place does not exist. Otherwise a missing place cannot come into being,
	// if the program could make it and the entry grants less than what is around it.
	SkipMissing bool
}

// Access is what may be done with a place. The zero value is no access at all: it is invalid.
type Access uint8

// The kinds of access, each granting what the one before grants.
const (
	AccessNone  Access = iota + 1 // neither reading nor writing
	AccessRead                    // reading and executing
	AccessWrite                   // reading, executing and writing
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

// Network says whether the network is reached.
type Network uint8

// The kinds of network access. The zero value is restricted.
const (
	NetworkRestricted Network = iota // no connecting, listening or addressed sending in any address family
	NetworkEnabled                   // whatever this user may do
)

func (n Network) String() string {
	if n == NetworkEnabled {
		return "enabled"
	}
	return "restricted"
}

// Special is a place that Resolve finds out.
type Special uint8

// The special places.
const (
	SpecialRoot         Special = iota + 1 // the root of the file system
	SpecialMinimal                         // what programs need to run at all: /usr, /bin, /lib, /etc and the like
	SpecialProjectRoots                    // every workspace root
	SpecialTmpdir                          // the directory that TMPDIR names in the child's environment, if it does
	SpecialSlashTmp                        // /tmp
)

func (s Special) String() string {
	switch s {
	case SpecialRoot:
		return "root"
	case SpecialMinimal:
		return "minimal"
	case SpecialProjectRoots:
		return "project roots"
	case SpecialTmpdir:
		return "tmpdir"
	case SpecialSlashTmp:
		return "/tmp"
	}
	return fmt.Sprintf("special(%d)", uint8(s))
}

// minimal is what SpecialMinimal stands for, as far as it exists.
var minimal = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/run/current-system/sw",
}

// Surroundings are the facts about one program that a policy can refer to.
type Surroundings struct {
	// TmpDir is what TMPDIR says in the child's environment. Empty: SpecialTmpdir stands for nothing.
	TmpDir string
	// Within is what the plan will be narrowed to. Places that it does not grant are not looked at, so that neither the
	// plan nor an error says what is there: an entry that names one, or leads there, is left out. Nil: every place is
	// looked at.
	Within *Plan
}

// The bounds of a plan.
const (
	// DefaultGlobDepth is how many directories deep globs are expanded unless the policy says otherwise.
	DefaultGlobDepth = 8
	// MaxGlobDepth is the most that a policy may say.
	MaxGlobDepth = 64
	// MaxPlaces is the most places that a policy may come to: each costs a mount.
	MaxPlaces = 1000
	// MaxGlobEntries is the most directory entries that are looked at to expand all globs of a policy.
	MaxGlobEntries = 200_000
)
