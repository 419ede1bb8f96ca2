package gateway

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// sandboxParams is the part of a sandbox parameter that says whether anything is
// to be confined.
type sandboxParams struct {
	Permissions permissionsParams `param:"permissions"`
}

// permissionsParams are tagged by their type; those of an older form have none
// and always confine.
type permissionsParams struct {
	Type       string            `param:"type,optional"`
	FileSystem *fileSystemParams `param:"file_system,optional"`
	Network    json.RawMessage   `param:"network,optional"`
}

type fileSystemParams struct {
	Type string `param:"type,optional"`
}

// confines is what of a sandbox concerns a request.
type confines int

const (
	confinesFiles    confines = iota // the network does not matter
	confinesPrograms                 // files and network
)

// checkSandbox refuses a sandbox that would have to be enforced: no backend is
// there yet, and a policy is never weakened in silence. The raw value is nil if
// the member is absent.
func checkSandbox(raw json.RawMessage, what confines) *jsonrpc.Error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var sandbox sandboxParams
	if err := jsonrpc.DecodeParams(raw, &sandbox); err != nil {
		return err
	}
	switch permissions := sandbox.Permissions; permissions.Type {
	case "disabled", "external":
		return nil
	case "managed":
		free := permissions.FileSystem != nil && permissions.FileSystem.Type == "unrestricted"
		if free && (what == confinesFiles || string(permissions.Network) == `"enabled"`) {
			return nil
		}
	case "":
	default:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"unknown variant `%s`, expected one of `managed`, `disabled`, `external`", shorten(permissions.Type))
	}
	return errSandboxUnavailable()
}

// olderPolicyParams is the parameter sandboxPolicy, which clients of April 2026
// have in the place of sandbox.
type olderPolicyParams struct {
	Type string `param:"type"`
}

// checkOlderPolicy is checkSandbox for that parameter. What is not known confines.
func checkOlderPolicy(raw json.RawMessage) *jsonrpc.Error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var policy olderPolicyParams
	if err := jsonrpc.DecodeParams(raw, &policy); err != nil {
		return err
	}
	switch policy.Type {
	case "dangerFullAccess", "externalSandbox":
		return nil
	}
	return errSandboxUnavailable()
}

func errSandboxUnavailable() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest,
		Message: "this server has no sandbox that can enforce the policy, so nothing was done: " +
			"ask without a sandbox, or use a server that has one",
		Data: map[string]string{"reason": "SANDBOX_UNAVAILABLE"},
	}
}
