package gateway

import (
	"encoding/json"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// permissionsParams are sandbox.permissions, tagged by their type. Those of an older
// form have none, and always confine. macos is for another system.
type permissionsParams struct {
	_ struct{} `param:",strict"`

	Type       *string         `param:"type"`
	FileSystem json.RawMessage `param:"file_system,optional"`
	Network    json.RawMessage `param:"network,optional"`
	MacOS      json.RawMessage `param:"macos,optional"`
}

// fileSystemParams are the file system in permissions, and in the older ones, which
// are not tagged and may have lists in the place of entries.
type fileSystemParams struct {
	_ struct{} `param:",strict"`

	Type      *string        `param:"type"`
	Kind      *string        `param:"kind"` // of fileSystemSandboxPolicy, in the place of type
	Entries   *[]entryParams `param:"entries"`
	Read      *[]string      `param:"read"`
	Write     *[]string      `param:"write"`
	GlobDepth *uint32        `param:"glob_scan_max_depth"`
}

func (r *sandboxReader) permissions(field string, raw json.RawMessage) (*policyDraft, *jsonrpc.Error) {
	var params permissionsParams
	if err := decodeObject(field, raw, &params); err != nil {
		return nil, err
	}
	draft := &policyDraft{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if params.Type == nil {
		return draft, r.untagged(field, &params, draft)
	}
	var err *jsonrpc.Error
	switch *params.Type {
	case "managed":
		if !isGiven(params.FileSystem) {
			return nil, missingMember(field, "file_system")
		}
		if err = r.fileSystem(field+".file_system", params.FileSystem, draft); err == nil {
			err = readNetwork(field, params.Network, draft)
		}
		return draft, err
	case "disabled":
		draft.kind = policyDisabled
	case "external":
		draft.kind = policyExternal
		err = readNetwork(field, params.Network, draft)
	default:
		return nil, unknownMember(field+".type", *params.Type, "managed", "disabled", "external")
	}
	if err == nil && isGiven(params.FileSystem) {
		return nil, invalidMember(field+".file_system", "is there, but nothing is restricted: use the type managed, or leave it out")
	}
	return draft, err
}

// readNetwork reads the network of tagged permissions.
func readNetwork(field string, raw json.RawMessage, into *policyDraft) *jsonrpc.Error {
	if raw == nil {
		return missingMember(field, "network")
	}
	var network string
	if json.Unmarshal(raw, &network) != nil {
		return invalidMember(field+".network", "is no string: say restricted or enabled")
	}
	switch network {
	case "restricted":
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	case "enabled":
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	default:
		return unknownMember(field+".network", network, "restricted", "enabled")
	}
	return nil
}

// untagged reads permissions of the older form, of which everything may be left out:
// then it grants nothing.
func (r *sandboxReader) untagged(field string, params *permissionsParams, into *policyDraft) *jsonrpc.Error {
	var network struct {
		_       struct{} `param:",strict"`
		Enabled *bool    `param:"enabled"`
	}
	if isGiven(params.Network) {
		if err := decodeObject(field+".network", params.Network, &network); err != nil {
			return err
		}
	}
	if network.Enabled != nil && *network.Enabled {
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	}
	if !isGiven(params.FileSystem) {
		return nil
	}
	var files fileSystemParams
	field += ".file_system"
	if err := decodeObject(field, params.FileSystem, &files); err != nil {
		return err
	}
	switch {
	case files.Type != nil:
		return invalidMember(field+".type", "is only for permissions with a `type`: give them one")
	case files.Kind != nil:
		return invalidMember(field+".kind", "is only for `fileSystemSandboxPolicy`: leave it out")
	case files.Entries != nil && (files.Read != nil || files.Write != nil):
		return invalidMember(field+".entries", "are there beside `read` or `write`: give one or the other")
	}
	for _, list := range []struct {
		name   string
		paths  *[]string
		access execwirev1.SandboxAccess
	}{
		{".read", files.Read, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ},
		{".write", files.Write, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE},
	} {
		if err := grantPaths(field+list.name, list.paths, list.access, into); err != nil {
			return err
		}
	}
	return r.restricted(field, &files, into)
}

// grantPaths adds entries for a list of paths, nil for none.
func grantPaths(field string, paths *[]string, access execwirev1.SandboxAccess, into *policyDraft) *jsonrpc.Error {
	if paths == nil {
		return nil
	}
	parsed, err := parsePaths(field, *paths)
	if err != nil {
		return asInvalid(err)
	}
	for _, path := range parsed {
		if _, raw := path.forCore(); raw != nil {
			return invalidMember(field, "has a path that is not UTF-8: name a directory above it")
		}
		into.grant(access, path.native)
	}
	return nil
}

// fileSystem reads the file system of tagged permissions.
func (r *sandboxReader) fileSystem(field string, raw json.RawMessage, into *policyDraft) *jsonrpc.Error {
	var files fileSystemParams
	if err := decodeObject(field, raw, &files); err != nil {
		return err
	}
	switch {
	case files.Type == nil:
		return missingMember(field, "type")
	case files.Kind != nil:
		return invalidMember(field+".kind", "is only for `fileSystemSandboxPolicy`: leave it out")
	}
	return r.fileSystemOf(field, *files.Type, "type", &files, into, "restricted", "unrestricted")
}

// fileSystemOf reads a file system that says by a tag what it is.
func (r *sandboxReader) fileSystemOf(field, said, tag string, files *fileSystemParams, into *policyDraft, known ...string) *jsonrpc.Error {
	switch {
	case files.Read != nil:
		return invalidMember(field+".read", "is only for permissions without a `type`: give entries")
	case files.Write != nil:
		return invalidMember(field+".write", "is only for permissions without a `type`: give entries")
	}
	switch said {
	case "restricted":
		if files.Entries == nil {
			return missingMember(field, "entries")
		}
		return r.restricted(field, files, into)
	case "unrestricted":
		if files.Entries != nil && len(*files.Entries) > 0 {
			return invalidMember(field+".entries", "are there, but nothing is restricted: say restricted, or leave them out")
		}
		into.unrestricted = true
		return nil
	}
	return unknownMember(field+"."+tag, said, known...)
}

// restricted reads the entries, as far as there are any, and how deep to look for
// patterns.
func (r *sandboxReader) restricted(field string, files *fileSystemParams, into *policyDraft) *jsonrpc.Error {
	if files.GlobDepth != nil && *files.GlobDepth == 0 {
		return invalidMember(field+".glob_scan_max_depth", "is 0: use 1 or more, or leave it out")
	}
	into.globDepth = files.GlobDepth
	if files.Entries == nil {
		return nil
	}
	return r.entries(field+".entries", *files.Entries, into)
}

// unknownMember refuses a member that is none of those that are known.
func unknownMember(field, said string, known ...string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: jsonrpc.UnknownVariant(said, known...).Error(),
		Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: strings.TrimPrefix(field, ".")}}
}
