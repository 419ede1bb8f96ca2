package harness

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// ReadOnly returns a policy that allows reading everything, no writing and no network.
func ReadOnly() *execwirev1.SandboxPolicy {
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
			Restricted: &execwirev1.RestrictedFileSystem{Entries: []*execwirev1.SandboxEntry{{
				Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{
					Kind: execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT}},
				Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ,
			}}}}},
		Network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED,
	}}}
}

// OnlyWritable returns a policy that allows reading everything and writing one directory.
func OnlyWritable(dir string) *execwirev1.SandboxPolicy {
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: &execwirev1.RestrictedFileSystem{
			Entries: []*execwirev1.SandboxEntry{
				{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ, Place: &execwirev1.SandboxEntry_Special{
					Special: &execwirev1.SpecialPath{Kind: execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT}}},
				{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, Place: &execwirev1.SandboxEntry_Path{Path: dir}},
			}}}}}}}
}
