package server

import (
	"context"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// fileSystemService implements execwire.v1.FileSystemService; what its methods
// promise is written in the proto.
type fileSystemService struct {
	execwirev1.UnsafeFileSystemServiceServer
	server *Server
}

var _ execwirev1.FileSystemServiceServer = (*fileSystemService)(nil)

// ReadFile implements the RPC.
func (s *fileSystemService) ReadFile(ctx context.Context, req *execwirev1.ReadFileRequest) (*execwirev1.ReadFileResponse, error) {
	data, metadata, err := fsops.ReadFile(ctx, pathOf(req), s.server.cfg.Limits.ReadFile)
	if err != nil {
		return nil, err
	}
	return &execwirev1.ReadFileResponse{Data: data, Metadata: toMetadata(metadata)}, nil
}

// WriteFile implements the RPC.
func (s *fileSystemService) WriteFile(ctx context.Context, req *execwirev1.WriteFileRequest) (*execwirev1.WriteFileResponse, error) {
	if err := fsops.WriteFile(ctx, pathOf(req), req.GetData()); err != nil {
		return nil, err
	}
	return &execwirev1.WriteFileResponse{}, nil
}

// CreateDirectory implements the RPC.
func (s *fileSystemService) CreateDirectory(_ context.Context, req *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	if err := fsops.CreateDirectory(pathOf(req), req.GetRecursive()); err != nil {
		return nil, err
	}
	return &execwirev1.CreateDirectoryResponse{}, nil
}

// GetMetadata implements the RPC.
func (s *fileSystemService) GetMetadata(_ context.Context, req *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	if !req.GetNoFollow() {
		metadata, err := fsops.Stat(pathOf(req))
		if err != nil {
			return nil, err
		}
		return &execwirev1.GetMetadataResponse{Metadata: toMetadata(metadata)}, nil
	}
	metadata, target, err := fsops.Lstat(pathOf(req))
	if err != nil {
		return nil, err
	}
	text, raw := toText(target)
	return &execwirev1.GetMetadataResponse{Metadata: toMetadata(metadata), LinkTarget: text, RawLinkTarget: raw}, nil
}

// RemovePath implements the RPC.
func (s *fileSystemService) RemovePath(ctx context.Context, req *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	how := fsops.Removal{Recursive: req.GetRecursive(), IgnoreMissing: req.GetIgnoreMissing()}
	if err := fsops.Remove(ctx, pathOf(req), how); err != nil {
		return nil, err
	}
	return &execwirev1.RemovePathResponse{}, nil
}

// CopyPath implements the RPC.
func (s *fileSystemService) CopyPath(ctx context.Context, req *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	omitted, err := fsops.Copy(ctx, pathOf(copySource{req}), pathOf(copyDestination{req}), req.GetRecursive())
	if err != nil {
		return nil, err
	}
	return &execwirev1.CopyPathResponse{OmittedSpecialFiles: omitted}, nil
}

// CanonicalizePath implements the RPC.
func (s *fileSystemService) CanonicalizePath(_ context.Context, req *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	path, err := fsops.Canonicalize(pathOf(req))
	if err != nil {
		return nil, err
	}
	text, raw := toText(path)
	return &execwirev1.CanonicalizePathResponse{Path: text, RawPath: raw}, nil
}
