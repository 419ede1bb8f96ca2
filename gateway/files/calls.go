package files

import (
	"context"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

type fsCreateDirectoryParams struct {
	Path      param.Path `param:"path"`
	Recursive *bool      `param:"recursive,optional"`
	confined
	following
}

func (p *fsCreateDirectoryParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, true }

func (p *fsCreateDirectoryParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	_, err := s.client.CreateDirectory(ctx, &execwirev1.CreateDirectoryRequest{
		Path: text, RawPath: raw, Recursive: isNotFalse(p.Recursive), NoSymlinks: p.refusesLinks(), Sandbox: p.policy})
	return done(err)
}

type fsGetMetadataParams struct {
	Path param.Path `param:"path"`
	confined
	following
}

// fsMetadata is the result of fs/getMetadata. CreatedAtMs is 0, unknown, as in the
// reference on Linux.
type fsMetadata struct {
	IsDirectory  bool   `json:"isDirectory"`
	IsFile       bool   `json:"isFile"`
	IsSymlink    bool   `json:"isSymlink"`
	Size         uint64 `json:"size"`
	CreatedAtMs  int64  `json:"createdAtMs"`
	ModifiedAtMs int64  `json:"modifiedAtMs"`
}

func (p *fsGetMetadataParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

func (p *fsGetMetadataParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	resp, err := s.client.GetMetadata(ctx, &execwirev1.GetMetadataRequest{Path: text, RawPath: raw, NoSymlinks: p.refusesLinks(), Sandbox: p.policy})
	if err != nil {
		return nil, fileError(err)
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
	Path      param.Path `param:"path"`
	Recursive *bool      `param:"recursive,optional"`
	Force     *bool      `param:"force,optional"`
	confined
	following
}

func (p *fsRemoveParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, true }

func (p *fsRemoveParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	_, err := s.client.RemovePath(ctx, &execwirev1.RemovePathRequest{Path: text, RawPath: raw,
		Recursive: isNotFalse(p.Recursive), IgnoreMissing: isNotFalse(p.Force), NoSymlinks: p.refusesLinks(), Sandbox: p.policy})
	return done(err)
}

type fsCopyParams struct {
	SourcePath      param.Path `param:"sourcePath"`
	DestinationPath param.Path `param:"destinationPath"`
	Recursive       bool       `param:"recursive"`
	confined
}

func (p *fsCopyParams) touches() ([]param.Path, bool) {
	return []param.Path{p.SourcePath, p.DestinationPath}, true
}

func (p *fsCopyParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	from, rawFrom := p.SourcePath.ProtoPath()
	to, rawTo := p.DestinationPath.ProtoPath()
	_, err := s.client.CopyPath(ctx, &execwirev1.CopyPathRequest{
		SourcePath: from, RawSourcePath: rawFrom, DestinationPath: to, RawDestinationPath: rawTo, Recursive: p.Recursive, Sandbox: p.policy})
	if err != nil {
		return nil, copyFailure(err)
	}
	return nothing{}, nil
}

type fsRenameParams struct {
	SourcePath      param.Path `param:"sourcePath"`
	DestinationPath param.Path `param:"destinationPath"`
	NoReplace       *bool      `param:"noReplace,optional"`
	confined
}

func (p *fsRenameParams) touches() ([]param.Path, bool) {
	return []param.Path{p.SourcePath, p.DestinationPath}, true
}

func (p *fsRenameParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	from, rawFrom := p.SourcePath.ProtoPath()
	to, rawTo := p.DestinationPath.ProtoPath()
	_, err := s.client.RenamePath(ctx, &execwirev1.RenamePathRequest{SourcePath: from, RawSourcePath: rawFrom,
		DestinationPath: to, RawDestinationPath: rawTo, NoReplace: isSet(p.NoReplace), Sandbox: p.policy})
	return done(err)
}

type fsCanonicalizeParams struct {
	Path param.Path `param:"path"`
	confined
}

// fsPath is the result of fs/canonicalize.
type fsPath struct {
	Path string `json:"path"`
}

func (p *fsCanonicalizeParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

func (p *fsCanonicalizeParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	resp, err := s.client.CanonicalizePath(ctx, &execwirev1.CanonicalizePathRequest{Path: text, RawPath: raw, Sandbox: p.policy})
	if err != nil {
		return nil, fileError(err)
	}
	native := resp.GetPath()
	if len(resp.GetRawPath()) > 0 {
		native = string(resp.GetRawPath())
	}
	return fsPath{Path: p.Path.Like(native)}, nil
}
