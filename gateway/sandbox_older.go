package gateway

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// olderTypes are the policies of the older forms, as each of them spells them.
var olderTypes = map[string]string{
	"dangerFullAccess": olderFull, "danger-full-access": olderFull, "DangerFullAccess": olderFull,
	"externalSandbox": olderExternal, "external-sandbox": olderExternal, "ExternalSandbox": olderExternal,
	"readOnly": olderReadOnly, "read-only": olderReadOnly, "ReadOnly": olderReadOnly,
	"workspaceWrite": olderWorkspaceWrite, "workspace-write": olderWorkspaceWrite, "WorkspaceWrite": olderWorkspaceWrite,
}

const (
	olderFull           = "danger-full-access"
	olderExternal       = "external-sandbox"
	olderReadOnly       = "read-only"
	olderWorkspaceWrite = "workspace-write"
)

// olderPolicyParams are a policy of the older forms, its members spelled as in the
// first of them.
type olderPolicyParams struct {
	_ struct{} `param:",strict"`

	Type           string          `param:"type"`
	Access         json.RawMessage `param:"access,optional"`
	ReadOnlyAccess json.RawMessage `param:"readOnlyAccess,optional"`
	WritableRoots  *[]string       `param:"writableRoots"`
	NetworkAccess  json.RawMessage `param:"networkAccess,optional"`
	ExcludeTmpdir  bool            `param:"excludeTmpdirEnvVar,optional"`
	ExcludeTmp     bool            `param:"excludeSlashTmp,optional"`
}

// readAccessParams say what a policy of the older forms lets read.
type readAccessParams struct {
	_ struct{} `param:",strict"`

	Type          string    `param:"type"`
	Defaults      bool      `param:"includePlatformDefaults,optional"`
	ReadableRoots *[]string `param:"readableRoots"`
}

// older reads a policy of the older forms, but for the members named in but, which
// are of what it is in.
func (r *sandboxReader) older(field string, raw json.RawMessage, but []string) (*policyDraft, *jsonrpc.Error) {
	r.useWorkspace()
	var params olderPolicyParams
	if err := decodeSpelled(field, raw, but, &params); err != nil {
		return nil, err
	}
	draft := &policyDraft{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if err := readNetworkAccess(field, params.NetworkAccess, draft); err != nil {
		return nil, err
	}
	switch olderTypes[params.Type] {
	case olderFull:
		draft.kind = policyDisabled
		return draft, nil
	case olderExternal:
		draft.kind = policyExternal
		return draft, nil
	case olderReadOnly:
		access := params.Access
		if params.ReadOnlyAccess != nil {
			if access != nil {
				return nil, invalidMember(field+".access", "is there beside `readOnlyAccess`: leave one of them out")
			}
			access = params.ReadOnlyAccess
		}
		return draft, readAccess(field+".access", access, draft)
	case olderWorkspaceWrite:
		if params.Access != nil {
			return nil, invalidMember(field+".access", "is not of a workspace-write policy: use `readOnlyAccess`")
		}
		return draft, workspaceWrite(field, &params, draft)
	}
	return nil, unknownMember(field+".type", params.Type, "dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite")
}

// workspaceWrite grants what the policy of that name does: the project roots, the
// roots it names, and the temporary directories unless it excludes them.
func workspaceWrite(field string, params *olderPolicyParams, into *policyDraft) *jsonrpc.Error {
	const write = execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE
	if err := readAccess(field+".readOnlyAccess", params.ReadOnlyAccess, into); err != nil {
		return err
	}
	if len(into.roots) > 0 {
		into.grantSpecial(write, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS)
	}
	if !params.ExcludeTmp {
		into.grantSpecial(write, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP)
	}
	if !params.ExcludeTmpdir {
		into.grantSpecial(write, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR)
	}
	return grantPaths(field+".writableRoots", params.WritableRoots, write, into)
}

// readAccess grants what may be read: everything, unless it is restricted.
func readAccess(field string, raw json.RawMessage, into *policyDraft) *jsonrpc.Error {
	const read = execwirev1.SandboxAccess_SANDBOX_ACCESS_READ
	if raw == nil {
		into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT)
		return nil
	}
	params := readAccessParams{Defaults: true}
	if err := decodeSpelled(field, raw, nil, &params); err != nil {
		return err
	}
	switch params.Type {
	case "fullAccess", "full-access", "FullAccess":
		if params.ReadableRoots != nil && len(*params.ReadableRoots) > 0 {
			return invalidMember(field+".readableRoots", "are there, but everything may be read: say restricted, or leave them out")
		}
		into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT)
		return nil
	case "restricted", "Restricted":
		if params.Defaults {
			into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL)
		}
		return grantPaths(field+".readableRoots", params.ReadableRoots, read, into)
	}
	return unknownMember(field+".type", params.Type, "restricted", "fullAccess")
}

// readNetworkAccess reads what says whether the network is reached: a boolean, or a
// word in a policy that leaves the confinement to others.
func readNetworkAccess(field string, raw json.RawMessage, into *policyDraft) *jsonrpc.Error {
	switch string(raw) {
	case "", "null", "false", `"restricted"`:
		return nil
	case "true", `"enabled"`:
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
		return nil
	}
	return invalidMember(field+".networkAccess", "is neither a boolean nor one of `restricted` and `enabled`")
}

// split reads the shapes that have the policy in a member of sandbox, and since the
// last of them its file system in another, which says more exactly what it says.
func (r *sandboxReader) split(params *sandboxParams) (*policyDraft, *jsonrpc.Error) {
	r.useWorkspace()
	draft := &policyDraft{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if isGiven(params.Policy) {
		var err *jsonrpc.Error
		if draft, err = r.older("sandbox.sandboxPolicy", params.Policy, nil); err != nil {
			return nil, err
		}
	}
	if isGiven(params.FileSystemPolicy) {
		if err := r.replaceFileSystem(params, draft); err != nil {
			return nil, err
		}
	}
	return draft, r.add(params.Additional, draft)
}

// replaceFileSystem puts fileSystemSandboxPolicy in the place of what sandboxPolicy
// says about files. It may be narrower or otherwise, but not lift all restrictions.
func (r *sandboxReader) replaceFileSystem(params *sandboxParams, into *policyDraft) *jsonrpc.Error {
	const field = "sandbox.fileSystemSandboxPolicy"
	var files fileSystemParams
	if err := decodeObject(field, params.FileSystemPolicy, &files); err != nil {
		return err
	}
	if files.Type != nil {
		return invalidMember(field+".type", "is only for `permissions`: give a `kind`")
	}
	if files.Kind == nil {
		return missingMember(field, "kind")
	}
	confined := into.kind == policyManaged && isGiven(params.Policy)
	if *files.Kind != "restricted" && confined {
		return invalidMember(field+".kind", "lifts what `sandboxPolicy` restricts: say restricted, or leave it out")
	}
	if *files.Kind == "external-sandbox" {
		into.kind = policyExternal
		return nil
	}
	if into.kind != policyManaged {
		*into = policyDraft{roots: into.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED, kind: policyManaged}
	}
	into.entries = nil
	return r.fileSystemOf(field, *files.Kind, "kind", &files, into, "restricted", "unrestricted", "external-sandbox")
}

// add grants what additionalPermissions grant beside a policy.
func (r *sandboxReader) add(raw json.RawMessage, into *policyDraft) *jsonrpc.Error {
	if !isGiven(raw) {
		return nil
	}
	more, err := r.permissions("sandbox.additionalPermissions", raw)
	switch {
	case err != nil:
		return err
	case more.kind != policyManaged || more.unrestricted:
		return invalidMember("sandbox.additionalPermissions.type", "lifts all restrictions: leave the policy out instead")
	case into.kind != policyManaged:
		return nil
	}
	into.network = max(into.network, more.network) // restricted, enabled
	if into.unrestricted {
		return nil
	}
	into.entries = append(into.entries, more.entries...)
	if into.globDepth == nil {
		into.globDepth = more.globDepth
	}
	return nil
}

// decodeSpelled decodes an object whose members are spelled as_here or asHere, but
// for those named in but.
func decodeSpelled(field string, raw json.RawMessage, but []string, into any) *jsonrpc.Error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return invalidMember(field, "is no object")
	}
	spelled := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		camel := toCamel(name)
		if slices.Contains(but, camel) {
			continue
		}
		if spelled[camel] != nil {
			return invalidMember(field+"."+camel, "is there in two spellings: leave one of them out")
		}
		spelled[camel] = value
	}
	written, err := json.Marshal(spelled)
	if err != nil {
		return invalidMember(field, "is no object")
	}
	return decodeObject(field, written, into)
}

// toCamel spells a name_like_this likeThis.
func toCamel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words {
		if i > 0 && word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}
