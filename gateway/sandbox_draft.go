package gateway

import (
	"slices"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// policyDraft is a policy on its way from JSON to the message of the core.
type policyDraft struct {
	kind         policyKind
	network      execwirev1.NetworkAccess
	unrestricted bool // all files
	entries      []*execwirev1.SandboxEntry
	globDepth    *uint32
	roots        []string // that project_roots stands for
}

// policyKind is who confines.
type policyKind int

const (
	policyManaged  policyKind = iota // the core
	policyDisabled                   // nobody
	policyExternal                   // somebody else
)

// maxGlobDepth is how deep patterns are looked for if the client does not say: as
// deep as a core looks. One that is not found there denies nothing.
const maxGlobDepth = 64

// forProcess is the policy of a process.
func (d *policyDraft) forProcess() *execwirev1.SandboxPolicy {
	switch {
	case d == nil:
		return nil
	case d.kind == policyDisabled, d.kind == policyManaged && d.unrestricted && !d.restrictsNetwork():
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

// forFiles is the policy of a call on files, for which the network does not matter;
// nil for one that confines nothing.
func (d *policyDraft) forFiles() *execwirev1.SandboxPolicy {
	if d == nil || d.kind != policyManaged || d.unrestricted {
		return nil
	}
	confined := *d
	confined.network = execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	return confined.forProcess()
}

func (d *policyDraft) fileSystem() *execwirev1.FileSystemPolicy {
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

// restrictsNetwork reports whether no network is reached at all.
func (d *policyDraft) restrictsNetwork() bool {
	return d != nil && d.kind == policyManaged && d.network != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

func (d *policyDraft) hasTmpdir() bool {
	return slices.ContainsFunc(d.entries, func(e *execwirev1.SandboxEntry) bool {
		return e.GetSpecial().GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR
	})
}

// grant adds entries for paths.
func (d *policyDraft) grant(access execwirev1.SandboxAccess, paths ...string) {
	for _, path := range paths {
		d.entries = append(d.entries, &execwirev1.SandboxEntry{Place: &execwirev1.SandboxEntry_Path{Path: path}, Access: access})
	}
}

// grantSpecial adds an entry for a place that the core resolves.
func (d *policyDraft) grantSpecial(access execwirev1.SandboxAccess, kind execwirev1.SpecialPathKind) {
	d.entries = append(d.entries, &execwirev1.SandboxEntry{Access: access,
		Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind}}})
}
