package client

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Sandbox says what a process, or a call about files, may touch, as most want it:
// everything may be read, as far as the server's user may. The zero value lets
// nothing be written and no network be reached. [Sandbox.Policy] is the message;
// finer policies are written as that.
type Sandbox struct {
	// Writable are the absolute directories of the server that may be written to.
	// What is named .git, .agents or .codex in them stays read-only.
	Writable []string
	// Temporary lets /tmp be written to, and what TMPDIR names in the process's
	// environment.
	Temporary bool
	// Network lets the network be reached.
	Network bool
}

// Policy returns the policy for requests, for example as DirectCommand.Sandbox.
func (s Sandbox) Policy() *execwirev1.SandboxPolicy {
	entries := []*execwirev1.SandboxEntry{special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ)}
	if len(s.Writable) > 0 {
		entries = append(entries, special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	}
	if s.Temporary {
		entries = append(entries,
			special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE),
			special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	}
	network := execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	if s.Network {
		network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	}
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
			Restricted: &execwirev1.RestrictedFileSystem{Entries: entries},
		}},
		Network:        network,
		WorkspaceRoots: s.Writable,
	}}}
}

func special(kind execwirev1.SpecialPathKind, access execwirev1.SandboxAccess) *execwirev1.SandboxEntry {
	return &execwirev1.SandboxEntry{
		Place:  &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind}},
		Access: access,
	}
}
