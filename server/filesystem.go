package server

import (
	"context"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

// fileSystemService implements execwire.v1.FileSystemService; the proto documents its
// methods.
type fileSystemService struct {
	execwirev1.UnsafeFileSystemServiceServer
	server *Server
}

var _ execwirev1.FileSystemServiceServer = (*fileSystemService)(nil)

// largeContent is how much content of a file, in bytes, makes freeing memory
// worthwhile.
const largeContent = 256 << 10

// noteContent reports that a call has transferred this much content of a file.
func (s *fileSystemService) noteContent(bytes int64) {
	if s.server.cfg.OnContent != nil && bytes >= largeContent {
		s.server.cfg.OnContent()
	}
}

// ReadFile implements the RPC.
func (s *fileSystemService) ReadFile(ctx context.Context, req *execwirev1.ReadFileRequest) (*execwirev1.ReadFileResponse, error) {
	data, metadata, err := fsops.ReadFile(ctx, pathOf(req), int(s.server.limits().GetReadFileBytes()), pathOptions(req)...)
	if err != nil {
		return nil, err
	}
	s.noteContent(int64(len(data)))
	return &execwirev1.ReadFileResponse{Data: data, Metadata: toMetadata(metadata)}, nil
}

// WriteFile implements the RPC.
func (s *fileSystemService) WriteFile(ctx context.Context, req *execwirev1.WriteFileRequest) (*execwirev1.WriteFileResponse, error) {
	if err := fsops.WriteFile(ctx, pathOf(req), req.GetData(), pathOptions(req)...); err != nil {
		return nil, err
	}
	s.noteContent(int64(len(req.GetData())))
	return &execwirev1.WriteFileResponse{}, nil
}

// CreateDirectory implements the RPC.
func (s *fileSystemService) CreateDirectory(_ context.Context, req *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	if err := fsops.CreateDirectory(pathOf(req), req.GetRecursive(), req.Permissions, pathOptions(req)...); err != nil {
		return nil, err
	}
	return &execwirev1.CreateDirectoryResponse{}, nil
}

// GetMetadata implements the RPC.
func (s *fileSystemService) GetMetadata(ctx context.Context, req *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	path, follow := pathOf(req), !req.GetNoFollow()
	var metadata fsops.Metadata
	var target string
	var err error
	if follow {
		metadata, err = fsops.Stat(path, pathOptions(req)...)
	} else {
		metadata, target, err = fsops.Lstat(path, pathOptions(req)...)
	}
	if err != nil {
		return nil, err
	}
	var digest []byte
	if req.GetWantSha256() && metadata.Type == fsops.Regular {
		isSymlink := metadata.IsSymlink
		if digest, metadata, err = fsops.Digest(ctx, path, follow, pathOptions(req)...); err != nil {
			return nil, err
		}
		metadata.IsSymlink = isSymlink
	}
	text, raw := toUTF8(target)
	return &execwirev1.GetMetadataResponse{Metadata: toMetadata(metadata), LinkTarget: text, RawLinkTarget: raw, Sha256: digest}, nil
}

// SetMetadata implements the RPC.
func (s *fileSystemService) SetMetadata(_ context.Context, req *execwirev1.SetMetadataRequest) (*execwirev1.SetMetadataResponse, error) {
	changes := fsops.Changes{Permissions: req.Permissions, Touch: req.GetTouch()}
	if req.GetModifyTime() != nil {
		changes.ModifyTime = req.GetModifyTime().AsTime()
	}
	metadata, err := fsops.SetMetadata(pathOf(req), changes, pathOptions(req)...)
	if err != nil {
		return nil, err
	}
	return &execwirev1.SetMetadataResponse{Metadata: toMetadata(metadata)}, nil
}

// RemovePath implements the RPC.
func (s *fileSystemService) RemovePath(ctx context.Context, req *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	how := fsops.Removal{Recursive: req.GetRecursive(), IgnoreMissing: req.GetIgnoreMissing(), NoSymlinks: req.GetNoSymlinks()}
	return &execwirev1.RemovePathResponse{}, fsops.Remove(ctx, pathOf(req), how)
}

// CopyPath implements the RPC.
func (s *fileSystemService) CopyPath(ctx context.Context, req *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	omitted, err := fsops.Copy(ctx, pathOf(sourceOf{req}), pathOf(destinationOf{req}), req.GetRecursive())
	if err != nil {
		return nil, err
	}
	return &execwirev1.CopyPathResponse{OmittedSpecialFiles: omitted}, nil
}

// RenamePath implements the RPC.
func (s *fileSystemService) RenamePath(_ context.Context, req *execwirev1.RenamePathRequest) (*execwirev1.RenamePathResponse, error) {
	return &execwirev1.RenamePathResponse{}, fsops.Rename(pathOf(sourceOf{req}), pathOf(destinationOf{req}), req.GetNoReplace())
}

// CreateSymlink implements the RPC.
func (s *fileSystemService) CreateSymlink(_ context.Context, req *execwirev1.CreateSymlinkRequest) (*execwirev1.CreateSymlinkResponse, error) {
	target := req.GetTarget()
	if raw := req.GetRawTarget(); len(raw) > 0 {
		target = string(raw)
	}
	return &execwirev1.CreateSymlinkResponse{}, fsops.CreateSymlink(pathOf(req), target)
}

// CanonicalizePath implements the RPC.
func (s *fileSystemService) CanonicalizePath(_ context.Context, req *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	path, err := fsops.Canonicalize(pathOf(req))
	if err != nil {
		return nil, err
	}
	text, raw := toUTF8(path)
	return &execwirev1.CanonicalizePathResponse{Path: text, RawPath: raw}, nil
}
