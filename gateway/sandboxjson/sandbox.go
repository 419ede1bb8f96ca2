package sandboxjson

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Parse parses the members sandbox and sandboxPolicy of a request. It returns nil if
// both are absent.
func (r *Parser) Parse(sandbox, policy json.RawMessage) (*Policy, *jsonrpc.Error) {
	switch {
	case param.IsGiven(sandbox) && param.IsGiven(policy):
		return nil, param.Invalid("sandboxPolicy", "is there beside `sandbox`: leave one of them out")
	case param.IsGiven(policy):
		r.cwd = r.Workspace
		return r.parseLegacy("sandboxPolicy", policy, nil)
	case param.IsGiven(sandbox):
		return r.parseSandbox(sandbox)
	}
	return nil, nil
}

func (r *Parser) parseSandbox(raw json.RawMessage) (*Policy, *jsonrpc.Error) {
	var params sandboxParams
	if err := param.DecodeObject("sandbox", raw, &params); err != nil {
		return nil, err
	}
	if err := r.parseDirectories(&params); err != nil {
		return nil, err
	}
	draft, err := r.parseShape(raw, &params)
	switch {
	case err != nil:
		return nil, err
	case r.needsCwd && r.cwd == nil:
		return nil, r.missingCwd()
	case draft.hasTmpdir() && params.TemporaryDirectories != nil && len(*params.TemporaryDirectories) > 0:
		return nil, Unavailable("`temporaryDirectories` cannot be what `tmpdir` stands for, which is the directory in TMPDIR: name them in entries of their own")
	}
	return draft, nil
}

// parseShape determines the shape by its members and parses it.
func (r *Parser) parseShape(raw json.RawMessage, params *sandboxParams) (*Policy, *jsonrpc.Error) {
	older := param.IsGiven(params.Policy) || param.IsGiven(params.FileSystemPolicy)
	if param.IsGiven(params.Permissions) && (older || params.Type != nil) || older && params.Type != nil {
		return nil, param.Invalid("sandbox", "says in two ways what is allowed: leave out all but one of `permissions`, `sandboxPolicy` and `type`")
	}
	switch {
	case older:
		return r.parseSplit(params)
	case params.Type != nil:
		r.defaultToWorkspace()
		return r.parseLegacy("sandbox", raw, contextMembers)
	case params.Permissions == nil:
		return nil, param.Missing("sandbox", "permissions")
	case params.WindowsLevel == nil:
		return nil, param.Missing("sandbox", "windowsSandboxLevel")
	}
	return r.parsePermissions("sandbox.permissions", params.Permissions)
}

// contextMembers are the members of sandbox that are not part of a legacy policy.
var contextMembers = []string{
	"cwd", "sandboxPolicyCwd", "workspaceRoots", "temporaryDirectories", "windowsSandboxLevel", "windowsSandboxPrivateDesktop",
	"windowsSandboxProxySettingsMode", "useLegacyLandlock", "sandboxOverride",
}

// MaxWorkspaceRoots is the largest number of workspace roots in a request.
const MaxWorkspaceRoots = 1000

// parseDirectories parses the directories that a policy refers to. For clients whose
// paths are not URIs, the project root is cwd.
func (r *Parser) parseDirectories(params *sandboxParams) *jsonrpc.Error {
	for _, cwd := range []struct {
		name string
		raw  *string
	}{{"sandbox.cwd", params.Cwd}, {"sandbox.sandboxPolicyCwd", params.PolicyCwd}} {
		if cwd.raw == nil {
			continue
		}
		path, err := parsePath(cwd.name, *cwd.raw)
		if err != nil {
			return err
		}
		r.cwd = &path
	}
	switch {
	case params.WorkspaceRoots != nil && len(*params.WorkspaceRoots) > MaxWorkspaceRoots:
		return tooLarge("sandbox.workspaceRoots", MaxWorkspaceRoots, "directories: name one above them")
	case params.WorkspaceRoots != nil:
		r.URIPaths, r.roots = true, []string{}
		roots, err := param.ParsePaths("sandbox.workspaceRoots", *params.WorkspaceRoots)
		if err != nil {
			return asInvalid(err)
		}
		for _, root := range roots {
			r.roots = append(r.roots, root.Native)
		}
	case r.cwd != nil && r.cwd.URI:
		r.URIPaths = true
	case r.cwd != nil:
		r.roots = []string{r.cwd.Native}
	}
	for _, root := range r.roots {
		if !utf8.ValidString(root) {
			return param.Invalid("sandbox.workspaceRoots", "is not UTF-8: rename the directory")
		}
	}
	return nil
}

// missingCwd is the error for a policy that depends on an absent cwd, with the code
// that the client's version uses.
func (r *Parser) missingCwd() *jsonrpc.Error {
	code := jsonrpc.CodeInvalidRequest
	if r.URIPaths {
		code = jsonrpc.CodeInvalidParams
	}
	return param.NewError(code, "sandbox.cwd", "file system sandbox context with dynamic permissions requires cwd")
}

// LegacyCwd returns the working directory that must exist for a client of a version
// whose paths are not URIs, or "". It is valid after Parse.
func (r *Parser) LegacyCwd() string {
	if r.URIPaths || r.cwd == nil {
		return ""
	}
	return r.cwd.Native
}
