package sandboxjson

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// legacyTypes maps every spelling of a legacy policy to its type.
var legacyTypes = map[string]string{
	"dangerFullAccess": legacyFull, "danger-full-access": legacyFull, "DangerFullAccess": legacyFull,
	"externalSandbox": legacyExternal, "external-sandbox": legacyExternal, "ExternalSandbox": legacyExternal,
	"readOnly": legacyReadOnly, "read-only": legacyReadOnly, "ReadOnly": legacyReadOnly,
	"workspaceWrite": legacyWorkspaceWrite, "workspace-write": legacyWorkspaceWrite, "WorkspaceWrite": legacyWorkspaceWrite,
}

const (
	legacyFull           = "danger-full-access"
	legacyExternal       = "external-sandbox"
	legacyReadOnly       = "read-only"
	legacyWorkspaceWrite = "workspace-write"
)

// legacyPolicyParams is a legacy policy in the spelling of its first version.
type legacyPolicyParams struct {
	_ struct{} `param:",strict"`

	Type           string          `param:"type"`
	Access         json.RawMessage `param:"access,optional"`
	ReadOnlyAccess json.RawMessage `param:"readOnlyAccess,optional"`
	WritableRoots  *[]string       `param:"writableRoots"`
	NetworkAccess  json.RawMessage `param:"networkAccess,optional"`
	ExcludeTmpdir  bool            `param:"excludeTmpdirEnvVar,optional"`
	ExcludeTmp     bool            `param:"excludeSlashTmp,optional"`
}

// readAccessParams is the read access of a legacy policy.
type readAccessParams struct {
	_ struct{} `param:",strict"`

	Type          string    `param:"type"`
	Defaults      bool      `param:"includePlatformDefaults,optional"`
	ReadableRoots *[]string `param:"readableRoots"`
}

// parseLegacy parses a legacy policy. It skips the members in except, which belong to
// the enclosing object.
func (r *Parser) parseLegacy(field string, raw json.RawMessage, except []string) (*Policy, *jsonrpc.Error) {
	r.defaultToWorkspace()
	var params legacyPolicyParams
	if err := decodeAnyCase(field, raw, except, &params); err != nil {
		return nil, err
	}
	draft := &Policy{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if err := readNetworkAccess(field, params.NetworkAccess, draft); err != nil {
		return nil, err
	}
	switch legacyTypes[params.Type] {
	case legacyFull:
		draft.kind = policyDisabled
		return draft, nil
	case legacyExternal:
		draft.kind = policyExternal
		return draft, nil
	case legacyReadOnly:
		access := params.Access
		if params.ReadOnlyAccess != nil {
			if access != nil {
				return nil, param.Invalid(field+".access", "is there beside `readOnlyAccess`: leave one of them out")
			}
			access = params.ReadOnlyAccess
		}
		return draft, readAccess(field+".access", access, draft)
	case legacyWorkspaceWrite:
		if params.Access != nil {
			return nil, param.Invalid(field+".access", "is not of a workspace-write policy: use `readOnlyAccess`")
		}
		return draft, workspaceWrite(field, &params, draft)
	}
	return nil, param.Unknown(field+".type", params.Type, "dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite")
}

// workspaceWrite grants write access to the project roots, the writable roots, and the
// temporary directories unless they are excluded.
func workspaceWrite(field string, params *legacyPolicyParams, into *Policy) *jsonrpc.Error {
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

// readAccess grants read access to everything, unless it is restricted.
func readAccess(field string, raw json.RawMessage, into *Policy) *jsonrpc.Error {
	const read = execwirev1.SandboxAccess_SANDBOX_ACCESS_READ
	if raw == nil {
		into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT)
		return nil
	}
	params := readAccessParams{Defaults: true}
	if err := decodeAnyCase(field, raw, nil, &params); err != nil {
		return err
	}
	switch params.Type {
	case "fullAccess", "full-access", "FullAccess":
		if params.ReadableRoots != nil && len(*params.ReadableRoots) > 0 {
			return param.Invalid(field+".readableRoots", "are there, but everything may be read: set `restricted`, or leave them out")
		}
		into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT)
		return nil
	case "restricted", "Restricted":
		if params.Defaults {
			into.grantSpecial(read, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL)
		}
		return grantPaths(field+".readableRoots", params.ReadableRoots, read, into)
	}
	return param.Unknown(field+".type", params.Type, "restricted", "fullAccess")
}

// readNetworkAccess parses the network access: a boolean, or a word in an external
// policy.
func readNetworkAccess(field string, raw json.RawMessage, into *Policy) *jsonrpc.Error {
	switch string(raw) {
	case "", "null", "false", `"restricted"`:
		return nil
	case "true", `"enabled"`:
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
		return nil
	}
	return param.Invalid(field+".networkAccess", "is neither a boolean nor one of `restricted` and `enabled`")
}

// parseSplit parses the shapes with the policy in a member of sandbox. In the last of
// them, a second member has the file system in more detail.
func (r *Parser) parseSplit(params *sandboxParams) (*Policy, *jsonrpc.Error) {
	r.defaultToWorkspace()
	draft := &Policy{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if param.IsGiven(params.Policy) {
		var err *jsonrpc.Error
		if draft, err = r.parseLegacy("sandbox.sandboxPolicy", params.Policy, nil); err != nil {
			return nil, err
		}
	}
	if param.IsGiven(params.FileSystemPolicy) {
		if err := r.replaceFileSystem(params, draft); err != nil {
			return nil, err
		}
	}
	return draft, r.addPermissions(params.Additional, draft)
}

// replaceFileSystem replaces the file system of sandboxPolicy by
// fileSystemSandboxPolicy, which may differ from it but must not lift all restrictions.
func (r *Parser) replaceFileSystem(params *sandboxParams, into *Policy) *jsonrpc.Error {
	const field = "sandbox.fileSystemSandboxPolicy"
	var files fileSystemParams
	if err := param.DecodeObject(field, params.FileSystemPolicy, &files); err != nil {
		return err
	}
	if files.Type != nil {
		return param.Invalid(field+".type", "is only for `permissions`: give a `kind`")
	}
	if files.Kind == nil {
		return param.Missing(field, "kind")
	}
	confined := into.kind == policyManaged && param.IsGiven(params.Policy)
	if *files.Kind != "restricted" && confined {
		return param.Invalid(field+".kind", "lifts what `sandboxPolicy` restricts: set `restricted`, or leave it out")
	}
	if *files.Kind == "external-sandbox" {
		into.kind = policyExternal
		return nil
	}
	if into.kind != policyManaged {
		*into = Policy{roots: into.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED, kind: policyManaged}
	}
	into.entries = nil
	return r.parseFileSystemBody(field, *files.Kind, "kind", &files, into, "restricted", "unrestricted", "external-sandbox")
}

// addPermissions adds the grants of additionalPermissions to a policy.
func (r *Parser) addPermissions(raw json.RawMessage, into *Policy) *jsonrpc.Error {
	if !param.IsGiven(raw) {
		return nil
	}
	more, err := r.parsePermissions("sandbox.additionalPermissions", raw)
	switch {
	case err != nil:
		return err
	case more.kind != policyManaged || more.unrestricted:
		return param.Invalid("sandbox.additionalPermissions.type", "lifts all restrictions: leave the policy out instead")
	case into.kind != policyManaged:
		return nil
	}
	into.network = max(into.network, more.network) // restricted < enabled
	if into.unrestricted {
		return nil
	}
	into.entries = append(into.entries, more.entries...)
	if into.globDepth == nil {
		into.globDepth = more.globDepth
	}
	return nil
}

// decodeAnyCase decodes an object whose members are in snake_case or camelCase, and
// skips those in except.
func decodeAnyCase(field string, raw json.RawMessage, except []string, into any) *jsonrpc.Error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return param.Invalid(field, "is no object")
	}
	spelled := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		camel := toCamel(name)
		if slices.Contains(except, camel) {
			continue
		}
		if spelled[camel] != nil {
			return param.Invalid(field+"."+camel, "is there in two spellings: leave one of them out")
		}
		spelled[camel] = value
	}
	written, err := json.Marshal(spelled)
	if err != nil {
		return param.Invalid(field, "is no object")
	}
	return param.DecodeObject(field, written, into)
}

// toCamel converts snake_case to camelCase.
func toCamel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words {
		if i > 0 && word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}
