package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// confinement is what a call on files says about its sandbox. The zero value
// confines nothing.
type confinement struct {
	policy *execwirev1.SandboxPolicy
	// cwd is a directory that has to exist for clients of older versions, or "".
	cwd  string
	seen *seenSandboxes // before it is read
}

// remember has what is read be looked for among what was seen, and be added.
func (c *confinement) remember(seen *seenSandboxes) { c.seen = seen }

// sandboxReader translates what a request says about its sandbox, in any of the
// shapes that it has had. What it does not understand and what would take something
// away is refused, so that a policy never grants more than the client meant.
type sandboxReader struct {
	// newer is whether the client is of a version that writes paths as URIs.
	newer bool
	// workspace is what a policy of the older forms makes writable that is asked for
	// without a directory of its own; nil for nothing.
	workspace *clientPath

	cwd   *clientPath // that relative patterns begin at; nil: none was given
	roots []string    // that project_roots stands for
	// dynamic is whether what the policy says depends on cwd.
	dynamic bool
	// patterns is how many there are by now.
	patterns int
}

// sandboxParams are the parameter sandbox. Exactly one of permissions, the older
// policies, and type is there; with type it is the policy itself. What is ignored
// (windowsSandboxProxySettingsMode, sandboxOverride and whatever comes later) is for
// other systems, or would grant more.
type sandboxParams struct {
	Permissions          json.RawMessage      `param:"permissions,optional"`
	Cwd                  *string              `param:"cwd"`
	WorkspaceRoots       *[]string            `param:"workspaceRoots"`
	TemporaryDirectories *[]string            `param:"temporaryDirectories"`
	WindowsLevel         *windowsSandboxLevel `param:"windowsSandboxLevel"`
	WindowsDesktop       bool                 `param:"windowsSandboxPrivateDesktop,optional"`
	LegacyLandlock       bool                 `param:"useLegacyLandlock,optional"`

	Policy           json.RawMessage `param:"sandboxPolicy,optional"`
	PolicyCwd        *string         `param:"sandboxPolicyCwd"`
	FileSystemPolicy json.RawMessage `param:"fileSystemSandboxPolicy,optional"`
	Additional       json.RawMessage `param:"additionalPermissions,optional"`

	Type *string `param:"type"`
}

// windowsSandboxLevel means nothing on this system, but must be one that exists.
type windowsSandboxLevel string

func (l *windowsSandboxLevel) UnmarshalText(text []byte) error {
	switch *l = windowsSandboxLevel(text); *l {
	case "disabled", "restricted-token", "elevated", "mxc":
		return nil
	}
	return jsonrpc.UnknownVariant(string(text), "disabled", "restricted-token", "elevated", "mxc")
}

// read translates the members sandbox and sandboxPolicy of a request. Nil is
// returned where there are none.
func (r *sandboxReader) read(sandbox, policy json.RawMessage) (*policyDraft, *jsonrpc.Error) {
	switch {
	case isGiven(sandbox) && isGiven(policy):
		return nil, invalidMember("sandboxPolicy", "is there beside `sandbox`: leave one of them out")
	case isGiven(policy):
		r.cwd = r.workspace
		return r.older("sandboxPolicy", policy, nil)
	case isGiven(sandbox):
		return r.readSandbox(sandbox)
	}
	return nil, nil
}

func (r *sandboxReader) readSandbox(raw json.RawMessage) (*policyDraft, *jsonrpc.Error) {
	var params sandboxParams
	if err := decodeObject("sandbox", raw, &params); err != nil {
		return nil, err
	}
	if err := r.readPlaces(&params); err != nil {
		return nil, err
	}
	draft, err := r.readShape(raw, &params)
	switch {
	case err != nil:
		return nil, err
	case r.dynamic && r.cwd == nil:
		return nil, r.needsCwd()
	case draft.hasTmpdir() && params.TemporaryDirectories != nil && len(*params.TemporaryDirectories) > 0:
		return nil, sandboxRefused("`temporaryDirectories` cannot be what `tmpdir` stands for, which is the directory in TMPDIR: name them in entries of their own")
	}
	return draft, nil
}

// readShape finds out which of the shapes it is.
func (r *sandboxReader) readShape(raw json.RawMessage, params *sandboxParams) (*policyDraft, *jsonrpc.Error) {
	older := isGiven(params.Policy) || isGiven(params.FileSystemPolicy)
	if isGiven(params.Permissions) && (older || params.Type != nil) || older && params.Type != nil {
		return nil, invalidMember("sandbox", "says in two ways what is allowed: leave out all but one of `permissions`, `sandboxPolicy` and `type`")
	}
	switch {
	case older:
		return r.split(params)
	case params.Type != nil:
		r.useWorkspace()
		return r.older("sandbox", raw, contextMembers)
	case params.Permissions == nil:
		return nil, missingMember("sandbox", "permissions")
	case params.WindowsLevel == nil:
		return nil, missingMember("sandbox", "windowsSandboxLevel")
	}
	return r.permissions("sandbox.permissions", params.Permissions)
}

// contextMembers are those of sandbox that are not of a policy.
var contextMembers = []string{
	"cwd", "sandboxPolicyCwd", "workspaceRoots", "temporaryDirectories", "windowsSandboxLevel", "windowsSandboxPrivateDesktop",
	"windowsSandboxProxySettingsMode", "useLegacyLandlock", "sandboxOverride",
}

// maxRoots is the most project roots of a request.
const maxRoots = 1000

// readPlaces reads the directories that a policy refers to. The project roots of
// older clients, whose paths are no URIs, are their cwd.
func (r *sandboxReader) readPlaces(params *sandboxParams) *jsonrpc.Error {
	for _, cwd := range []struct {
		name string
		raw  *string
	}{{"sandbox.cwd", params.Cwd}, {"sandbox.sandboxPolicyCwd", params.PolicyCwd}} {
		if cwd.raw == nil {
			continue
		}
		path, err := sandboxPath(cwd.name, *cwd.raw)
		if err != nil {
			return err
		}
		r.cwd = &path
	}
	switch {
	case params.WorkspaceRoots != nil && len(*params.WorkspaceRoots) > maxRoots:
		return sandboxTooLarge("sandbox.workspaceRoots", maxRoots, "directories: name one above them")
	case params.WorkspaceRoots != nil:
		r.newer, r.roots = true, []string{}
		roots, err := parsePaths("sandbox.workspaceRoots", *params.WorkspaceRoots)
		if err != nil {
			return asInvalid(err)
		}
		for _, root := range roots {
			r.roots = append(r.roots, root.native)
		}
	case r.cwd != nil && r.cwd.uri:
		r.newer = true
	case r.cwd != nil:
		r.roots = []string{r.cwd.native}
	}
	for _, root := range r.roots {
		if !utf8.ValidString(root) {
			return invalidMember("sandbox.workspaceRoots", "is not UTF-8: rename the directory")
		}
	}
	return nil
}

// useWorkspace is for the older policies, whose cwd is writable whatever the form
// of its path.
func (r *sandboxReader) useWorkspace() {
	if r.cwd == nil {
		r.cwd = r.workspace
	}
	if r.cwd != nil && r.roots == nil {
		r.roots = []string{r.cwd.native}
	}
}

// needsCwd refuses a policy that depends on a directory that was not given, as the
// version of the client does.
func (r *sandboxReader) needsCwd() *jsonrpc.Error {
	code := jsonrpc.CodeInvalidRequest
	if r.newer {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: "file system sandbox context with dynamic permissions requires cwd",
		Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: "sandbox.cwd"}}
}

// sandboxPath reads a path of a sandbox.
func sandboxPath(field, raw string) (clientPath, *jsonrpc.Error) {
	path, err := parsePath(field, raw)
	if err != nil {
		return path, asInvalid(err)
	}
	if !utf8.ValidString(path.native) {
		return path, invalidMember(field, "is not UTF-8: name a directory above it")
	}
	return path, nil
}

// asInvalid makes an error about a path one about the parameters.
func asInvalid(err *jsonrpc.Error) *jsonrpc.Error {
	err.Code = jsonrpc.CodeInvalidParams
	return err
}

func missingMember(field, name string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "missing field `" + name + "`",
		Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: field + "." + name}}
}

// decodeObject reads a member that is an object; its name is put before those of
// what is wrong in it.
func decodeObject(field string, raw json.RawMessage, into any) *jsonrpc.Error {
	if len(raw) > 0 && raw[0] == '[' {
		return invalidMember(field, "is an array: give an object")
	}
	err := jsonrpc.DecodeParams(raw, into)
	if err == nil {
		return nil
	}
	if at, ok := err.Data.(jsonrpc.InvalidField); ok {
		if at.Field != "" && !strings.HasPrefix(at.Field, "[") {
			at.Field = "." + at.Field
		}
		at.Field = field + at.Field
		err.Data = at
	}
	return err
}

// isInSandbox reports whether a field of a request to the core is in its policy.
func isInSandbox(field string) bool {
	for _, prefix := range []string{"command.direct.", "head."} {
		field = strings.TrimPrefix(field, prefix)
	}
	return strings.HasPrefix(field, "sandbox.")
}

// sandboxRefused is for what was understood and cannot be enforced.
func sandboxRefused(problem string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidRequest,
		Message: problem + "; nothing was done",
		Data:    map[string]string{"reason": "SANDBOX_UNAVAILABLE"},
	}
}

// sandboxTooLarge is for what comes to more than a limit.
func sandboxTooLarge(field string, limit int, of string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: fmt.Sprintf("`%s` come to more than %d %s", field, limit, of),
		Data:    map[string]string{"reason": "SANDBOX_TOO_LARGE", "field": field, "limit": strconv.Itoa(limit)},
	}
}

// read translates what a call on files says about its sandbox. like is a path of the
// call; the sandbox and the policy are parts of the message, and gone when it
// returns.
func (c *confinement) read(like clientPath, sandbox, policy *json.RawMessage) *jsonrpc.Error {
	seen, rawSandbox, rawPolicy := c.seen, takeRaw(sandbox), takeRaw(policy)
	*c = confinement{}
	if !isGiven(rawSandbox) && !isGiven(rawPolicy) {
		return nil
	}
	known := false
	if *c, known = seen.find(like.uri, rawSandbox, rawPolicy); known {
		return nil
	}
	r := sandboxReader{newer: like.uri}
	draft, err := r.read(rawSandbox, rawPolicy)
	if err != nil {
		return err
	}
	c.policy = draft.forFiles()
	if c.policy != nil && !r.newer && r.cwd != nil {
		c.cwd = r.cwd.native
	}
	seen.add(like.uri, rawSandbox, rawPolicy, *c)
	return nil
}

// confinedCall is a call on files that may have a sandbox.
type confinedCall interface {
	call
	remember(seen *seenSandboxes)
	checkCwd(ctx context.Context, r *request) *jsonrpc.Error
}

// checkCwd asks the core whether the directory exists that has to. Older versions ran
// such calls in the cwd of the sandbox.
func (c *confinement) checkCwd(ctx context.Context, r *request) *jsonrpc.Error {
	if c.cwd == "" {
		return nil
	}
	_, err := r.fileSystem.GetMetadata(ctx, &execwirev1.GetMetadataRequest{Path: c.cwd})
	if coreInfo(err).GetMetadata()["errno"] == "ENOENT" {
		return failureWithCode(err, jsonrpc.CodeInternal, osErrorText("ENOENT"))
	}
	return nil // what else is wrong with it is no matter of this call
}
