package sandboxjson

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// permissionsParams is the member permissions, tagged by its type. Without a type it is
// of an older version and always restricts. The member macos is for another system.
type permissionsParams struct {
	_ struct{} `param:",strict"`

	Type       *string         `param:"type"`
	FileSystem json.RawMessage `param:"file_system,optional"`
	Network    json.RawMessage `param:"network,optional"`
	MacOS      json.RawMessage `param:"macos,optional"`
}

// fileSystemParams is the file system of permissions. In older versions it is not
// tagged and may have lists of paths instead of entries.
type fileSystemParams struct {
	_ struct{} `param:",strict"`

	Type      *string        `param:"type"`
	Kind      *string        `param:"kind"` // in fileSystemSandboxPolicy, instead of type
	Entries   *[]entryParams `param:"entries"`
	Read      *[]string      `param:"read"`
	Write     *[]string      `param:"write"`
	GlobDepth *uint32        `param:"glob_scan_max_depth"`
}

func (r *Parser) parsePermissions(field string, raw json.RawMessage) (*Policy, *jsonrpc.Error) {
	var params permissionsParams
	if err := param.DecodeObject(field, raw, &params); err != nil {
		return nil, err
	}
	draft := &Policy{roots: r.roots, network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED}
	if params.Type == nil {
		return draft, r.parseUntagged(field, &params, draft)
	}
	var err *jsonrpc.Error
	switch *params.Type {
	case "managed":
		if !param.IsGiven(params.FileSystem) {
			return nil, param.Missing(field, "file_system")
		}
		if err = r.parseFileSystem(field+".file_system", params.FileSystem, draft); err == nil {
			err = parseNetwork(field, params.Network, draft)
		}
		return draft, err
	case "disabled":
		draft.kind = policyDisabled
	case "external":
		draft.kind = policyExternal
		err = parseNetwork(field, params.Network, draft)
	default:
		return nil, param.Unknown(field+".type", *params.Type, "managed", "disabled", "external")
	}
	if err == nil && param.IsGiven(params.FileSystem) {
		return nil, param.Invalid(field+".file_system", "is there, but nothing is restricted: use the type managed, or leave it out")
	}
	return draft, err
}

// parseNetwork parses the network of tagged permissions.
func parseNetwork(field string, raw json.RawMessage, into *Policy) *jsonrpc.Error {
	if raw == nil {
		return param.Missing(field, "network")
	}
	var network string
	if json.Unmarshal(raw, &network) != nil {
		return param.Invalid(field+".network", "is no string: set `restricted` or `enabled`")
	}
	switch network {
	case "restricted":
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
	case "enabled":
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	default:
		return param.Unknown(field+".network", network, "restricted", "enabled")
	}
	return nil
}

// parseUntagged parses permissions of the older version. Absent members grant nothing.
func (r *Parser) parseUntagged(field string, params *permissionsParams, into *Policy) *jsonrpc.Error {
	var network struct {
		_       struct{} `param:",strict"`
		Enabled *bool    `param:"enabled"`
	}
	if param.IsGiven(params.Network) {
		if err := param.DecodeObject(field+".network", params.Network, &network); err != nil {
			return err
		}
	}
	if network.Enabled != nil && *network.Enabled {
		into.network = execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	}
	if !param.IsGiven(params.FileSystem) {
		return nil
	}
	var files fileSystemParams
	field += ".file_system"
	if err := param.DecodeObject(field, params.FileSystem, &files); err != nil {
		return err
	}
	switch {
	case files.Type != nil:
		return param.Invalid(field+".type", "is only for permissions with a `type`: give them one")
	case files.Kind != nil:
		return param.Invalid(field+".kind", "is only for `fileSystemSandboxPolicy`: leave it out")
	case files.Entries != nil && (files.Read != nil || files.Write != nil):
		return param.Invalid(field+".entries", "are there beside `read` or `write`: give one or the other")
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
	return r.parseRestricted(field, &files, into)
}

// grantPaths adds an entry for each path; nil is none.
func grantPaths(field string, paths *[]string, access execwirev1.SandboxAccess, into *Policy) *jsonrpc.Error {
	if paths == nil {
		return nil
	}
	parsed, err := param.ParsePaths(field, *paths)
	if err != nil {
		return asInvalid(err)
	}
	for _, path := range parsed {
		if _, raw := path.ProtoPath(); raw != nil {
			return param.Invalid(field, "has a path that is not UTF-8: name a directory above it")
		}
		into.grant(access, path.Native)
	}
	return nil
}

// parseFileSystem parses the file system of tagged permissions.
func (r *Parser) parseFileSystem(field string, raw json.RawMessage, into *Policy) *jsonrpc.Error {
	var files fileSystemParams
	if err := param.DecodeObject(field, raw, &files); err != nil {
		return err
	}
	switch {
	case files.Type == nil:
		return param.Missing(field, "type")
	case files.Kind != nil:
		return param.Invalid(field+".kind", "is only for `fileSystemSandboxPolicy`: leave it out")
	}
	return r.parseFileSystemBody(field, *files.Type, "type", &files, into, "restricted", "unrestricted")
}

// parseFileSystemBody parses a file system of the kind that its tag names.
func (r *Parser) parseFileSystemBody(field, value, tag string, files *fileSystemParams, into *Policy, known ...string) *jsonrpc.Error {
	switch {
	case files.Read != nil:
		return param.Invalid(field+".read", "is only for permissions without a `type`: give entries")
	case files.Write != nil:
		return param.Invalid(field+".write", "is only for permissions without a `type`: give entries")
	}
	switch value {
	case "restricted":
		if files.Entries == nil {
			return param.Missing(field, "entries")
		}
		return r.parseRestricted(field, files, into)
	case "unrestricted":
		if files.Entries != nil && len(*files.Entries) > 0 {
			return param.Invalid(field+".entries", "are there, but nothing is restricted: set `restricted`, or leave them out")
		}
		into.unrestricted = true
		return nil
	}
	return param.Unknown(field+"."+tag, value, known...)
}

// parseRestricted parses the optional entries and the search depth for patterns.
func (r *Parser) parseRestricted(field string, files *fileSystemParams, into *Policy) *jsonrpc.Error {
	if files.GlobDepth != nil && *files.GlobDepth == 0 {
		return param.Invalid(field+".glob_scan_max_depth", "is 0: use 1 or more, or leave it out")
	}
	into.globDepth = files.GlobDepth
	if files.Entries == nil {
		return nil
	}
	return r.parseEntries(field+".entries", *files.Entries, into)
}
