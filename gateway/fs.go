package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// nothing is the result {}.
type nothing struct{}

// checkFile reads the path of a request, and what it says about its sandbox. The
// sandbox and the policy are parts of the message, and gone when it returns.
func checkFile(into *clientPath, field, raw string, confined *confinement, sandbox, policy *json.RawMessage) (err *jsonrpc.Error) {
	if *into, err = parsePath(field, raw); err != nil {
		return err
	}
	return confined.read(*into, sandbox, policy)
}

// noSymlinks reports whether a request is to follow no links, which an older core
// would do nevertheless.
func (r *request) noSymlinks(follow *bool) (bool, *jsonrpc.Error) {
	if follow == nil || *follow {
		return false, nil
	}
	if !slices.Contains(r.environment.native.GetFeatures(), execwirev1.Feature_FEATURE_NO_SYMLINKS) {
		return false, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "this server cannot refuse symbolic links: leave followSymlinks out, or use fs/canonicalize first")
	}
	return true, nil
}

// takeRaw returns a value that is part of the message, and drops it.
func takeRaw(value *json.RawMessage) json.RawMessage {
	if value == nil {
		return nil
	}
	raw := *value
	*value = nil
	return raw
}

// forCore returns the path in the form that a core takes: text, or bytes where
// it is not UTF-8.
func (p clientPath) forCore() (text string, raw []byte) {
	if utf8.ValidString(p.native) {
		return p.native, nil
	}
	return "", []byte(p.native)
}

type fsCreateDirectoryParams struct {
	Path      string          `param:"path"`
	Recursive *bool           `param:"recursive,optional"`
	Sandbox   json.RawMessage `param:"sandbox,optional"`
	Policy    json.RawMessage `param:"sandboxPolicy,optional,named"`
	Follow    *bool           `param:"followSymlinks,optional"`

	path clientPath
	confinement
}

func (p *fsCreateDirectoryParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsCreateDirectoryParams) touches() ([]string, bool) { return []string{p.path.native}, true }

func (p *fsCreateDirectoryParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	noSymlinks, failed := r.noSymlinks(p.Follow)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	_, err := r.fileSystem.CreateDirectory(ctx, &execwirev1.CreateDirectoryRequest{
		Path: text, RawPath: raw, Recursive: p.Recursive == nil || *p.Recursive, NoSymlinks: noSymlinks, Sandbox: p.policy})
	if err != nil {
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}

type fsGetMetadataParams struct {
	Path    string          `param:"path"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`
	Follow  *bool           `param:"followSymlinks,optional"`

	path clientPath
	confinement
}

// fsMetadata is the result of fs/getMetadata. CreatedAtMs is 0, which means that
// it is not known, as it always is with the reference on Linux.
type fsMetadata struct {
	IsDirectory  bool   `json:"isDirectory"`
	IsFile       bool   `json:"isFile"`
	IsSymlink    bool   `json:"isSymlink"`
	Size         uint64 `json:"size"`
	CreatedAtMs  int64  `json:"createdAtMs"`
	ModifiedAtMs int64  `json:"modifiedAtMs"`
}

func (p *fsGetMetadataParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsGetMetadataParams) touches() ([]string, bool) { return []string{p.path.native}, false }

func (p *fsGetMetadataParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	noSymlinks, failed := r.noSymlinks(p.Follow)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	resp, err := r.fileSystem.GetMetadata(ctx, &execwirev1.GetMetadataRequest{Path: text, RawPath: raw, NoSymlinks: noSymlinks, Sandbox: p.policy})
	if err != nil {
		return nil, fileFailure(err)
	}
	m := resp.GetMetadata()
	return fsMetadata{
		IsDirectory:  m.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY,
		IsFile:       m.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR,
		IsSymlink:    m.GetIsSymlink(),
		Size:         m.GetSize(),
		ModifiedAtMs: max(0, m.GetModifyTime().AsTime().UnixMilli()),
	}, nil
}

type fsRemoveParams struct {
	Path      string          `param:"path"`
	Recursive *bool           `param:"recursive,optional"`
	Force     *bool           `param:"force,optional"`
	Sandbox   json.RawMessage `param:"sandbox,optional"`
	Policy    json.RawMessage `param:"sandboxPolicy,optional,named"`
	Follow    *bool           `param:"followSymlinks,optional"`

	path clientPath
	confinement
}

func (p *fsRemoveParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsRemoveParams) touches() ([]string, bool) { return []string{p.path.native}, true }

func (p *fsRemoveParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	noSymlinks, failed := r.noSymlinks(p.Follow)
	if failed != nil {
		return nil, failed
	}
	text, raw := p.path.forCore()
	_, err := r.fileSystem.RemovePath(ctx, &execwirev1.RemovePathRequest{Path: text, RawPath: raw,
		Recursive: p.Recursive == nil || *p.Recursive, IgnoreMissing: p.Force == nil || *p.Force, NoSymlinks: noSymlinks, Sandbox: p.policy})
	if err != nil {
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}

type fsCopyParams struct {
	SourcePath      string          `param:"sourcePath"`
	DestinationPath string          `param:"destinationPath"`
	Recursive       bool            `param:"recursive"`
	Sandbox         json.RawMessage `param:"sandbox,optional"`
	Policy          json.RawMessage `param:"sandboxPolicy,optional,named"`

	source, destination clientPath
	confinement
}

func (p *fsCopyParams) check() *jsonrpc.Error {
	if err := checkFile(&p.source, "sourcePath", p.SourcePath, &p.confinement, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
	var err *jsonrpc.Error
	p.destination, err = parsePath("destinationPath", p.DestinationPath)
	return err
}

func (p *fsCopyParams) touches() ([]string, bool) {
	return []string{p.source.native, p.destination.native}, true
}

func (p *fsCopyParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	from, rawFrom := p.source.forCore()
	to, rawTo := p.destination.forCore()
	_, err := r.fileSystem.CopyPath(ctx, &execwirev1.CopyPathRequest{
		SourcePath: from, RawSourcePath: rawFrom, DestinationPath: to, RawDestinationPath: rawTo, Recursive: p.Recursive, Sandbox: p.policy})
	if err != nil {
		return nil, copyFailure(err)
	}
	return nothing{}, nil
}

type fsCanonicalizeParams struct {
	Path    string          `param:"path"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`

	path clientPath
	confinement
}

// fsPath is the result of fs/canonicalize.
type fsPath struct {
	Path string `json:"path"`
}

func (p *fsCanonicalizeParams) check() *jsonrpc.Error {
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsCanonicalizeParams) touches() ([]string, bool) { return []string{p.path.native}, false }

func (p *fsCanonicalizeParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	text, raw := p.path.forCore()
	resp, err := r.fileSystem.CanonicalizePath(ctx, &execwirev1.CanonicalizePathRequest{Path: text, RawPath: raw, Sandbox: p.policy})
	if err != nil {
		return nil, fileFailure(err)
	}
	native := resp.GetPath()
	if len(resp.GetRawPath()) > 0 {
		native = string(resp.GetRawPath())
	}
	return fsPath{Path: p.path.like(native)}, nil
}
