package sandboxjson

import (
	"slices"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Policy is a parsed policy, to be converted to the message of the server.
type Policy struct {
	kind         policyKind
	network      execwirev1.NetworkAccess
	unrestricted bool // all files are accessible
	entries      []*execwirev1.SandboxEntry
	globDepth    *uint32
	roots        []string // what project_roots stands for
}

// policyKind says who enforces the policy.
type policyKind int

const (
	policyManaged  policyKind = iota // the server
	policyDisabled                   // the policy is not enforced
	policyExternal                   // the client's environment
)

// maxGlobDepth is the default depth of the search for patterns, and the server's
// maximum. A pattern denies nothing below it.
const maxGlobDepth = 64

// ForProcess returns the policy for a process; nil for a nil Policy.
func (d *Policy) ForProcess() *execwirev1.SandboxPolicy {
	switch {
	case d == nil:
		return nil
	case d.kind == policyDisabled, d.kind == policyManaged && d.unrestricted && !d.RestrictsNetwork():
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Disabled{Disabled: &execwirev1.DisabledSandbox{}}}
	case d.kind == policyExternal:
		return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_External{External: &execwirev1.ExternalSandbox{Network: d.network}}}
	}
	managed := &execwirev1.ManagedSandbox{FileSystem: d.fileSystem(), Network: d.network}
	if !d.unrestricted {
		managed.WorkspaceRoots = d.roots
	}
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: managed}}
}

// ForFiles returns the policy for a file call, where the network does not matter; nil
// if it does not restrict files.
func (d *Policy) ForFiles() *execwirev1.SandboxPolicy {
	if d == nil || d.kind != policyManaged || d.unrestricted {
		return nil
	}
	confined := *d
	confined.network = execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	return confined.ForProcess()
}

func (d *Policy) fileSystem() *execwirev1.FileSystemPolicy {
	if d.unrestricted {
		return &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Unrestricted{Unrestricted: &execwirev1.UnrestrictedFileSystem{}}}
	}
	restricted := &execwirev1.RestrictedFileSystem{Entries: d.entries, GlobScanMaxDepth: d.globDepth}
	hasGlobs := slices.ContainsFunc(d.entries, func(e *execwirev1.SandboxEntry) bool { return e.GetGlob() != "" })
	if hasGlobs && d.globDepth == nil {
		depth := uint32(maxGlobDepth)
		restricted.GlobScanMaxDepth = &depth
	}
	return &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: restricted}}
}

// RestrictsNetwork reports whether the policy denies all network access.
func (d *Policy) RestrictsNetwork() bool {
	return d != nil && d.kind == policyManaged && d.network != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

func (d *Policy) hasTmpdir() bool {
	return slices.ContainsFunc(d.entries, func(e *execwirev1.SandboxEntry) bool {
		return e.GetSpecial().GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR
	})
}

func (d *Policy) grant(access execwirev1.SandboxAccess, paths ...string) {
	for _, path := range paths {
		d.entries = append(d.entries, &execwirev1.SandboxEntry{Place: &execwirev1.SandboxEntry_Path{Path: path}, Access: access})
	}
}

// grantSpecial adds an entry for a path that the server resolves.
func (d *Policy) grantSpecial(access execwirev1.SandboxAccess, kind execwirev1.SpecialPathKind) {
	d.entries = append(d.entries, &execwirev1.SandboxEntry{Access: access,
		Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind}}})
}
