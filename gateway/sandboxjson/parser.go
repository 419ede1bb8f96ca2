package sandboxjson

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Parser parses the sandbox of a request, in any of the shapes that versions of the
// protocol have had. It rejects what it does not understand if ignoring it could lift a
// restriction, so a policy never grants more than the client meant. A Parser is for one
// request.
type Parser struct {
	// URIPaths reports whether the client's version writes paths as URIs.
	URIPaths bool
	// Workspace is the directory that a legacy policy without a working directory of
	// its own makes writable; nil is none.
	Workspace *param.Path

	cwd   *param.Path // base of relative patterns; nil if the request has none
	roots []string    // what project_roots stands for
	// needsCwd reports whether the policy depends on cwd.
	needsCwd bool
	// patternCount is the number of patterns so far; maxPatterns bounds it.
	patternCount int
}

// sandboxParams is the member sandbox. Exactly one of permissions, the legacy policies
// and type is present; with type, the object is the policy itself. Other members
// (windowsSandboxProxySettingsMode, sandboxOverride, future ones) are ignored: they are
// for other systems, or would grant more.
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

// windowsSandboxLevel has no effect on Linux, but unknown values are rejected.
type windowsSandboxLevel string

func (l *windowsSandboxLevel) UnmarshalText(text []byte) error {
	levels := []string{"disabled", "restricted-token", "elevated", "mxc"}
	return param.Variant((*string)(l), text, levels, levels...)
}

// defaultToWorkspace sets the defaults of legacy policies: cwd is the workspace, and
// writable whatever the form of its path.
func (r *Parser) defaultToWorkspace() {
	if r.cwd == nil {
		r.cwd = r.Workspace
	}
	if r.cwd != nil && r.roots == nil {
		r.roots = []string{r.cwd.Native}
	}
}

func parsePath(field, raw string) (param.Path, *jsonrpc.Error) {
	path, err := param.ParsePath(field, raw)
	if err != nil {
		return path, asInvalid(err)
	}
	if !utf8.ValidString(path.Native) {
		return path, param.Invalid(field, "is not UTF-8: name a directory above it")
	}
	return path, nil
}

// asInvalid turns an error about a path into one about the parameters.
func asInvalid(err *jsonrpc.Error) *jsonrpc.Error {
	err.Code = jsonrpc.CodeInvalidParams
	return err
}

// Unavailable is the error for a policy that is valid and cannot be enforced.
func Unavailable(problem string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidRequest,
		Message: problem + "; nothing was done",
		Data:    map[string]string{"reason": "SANDBOX_UNAVAILABLE"},
	}
}

// tooLarge is the error for more than limit items.
func tooLarge(field string, limit int, of string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: fmt.Sprintf("`%s` come to more than %d %s", field, limit, of),
		Data:    map[string]string{"reason": "SANDBOX_TOO_LARGE", "field": field, "limit": strconv.Itoa(limit)},
	}
}
