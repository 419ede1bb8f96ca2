package execserver

import (
	"cmp"
	"context"
	"path"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fileService makes calls on files of servers that cannot be asked in the words of the
// contract: by the methods fs/… that the reference has. What those cannot do, such as
// to rename, or to put a file in the place of another in one step, is refused before
// anything is done.
type fileService struct {
	execwirev1.UnimplementedFileSystemServiceServer
	conn    *Conn
	handles fileHandles
}

// wireWhere is a place that a request is about.
type wireWhere struct {
	Path    string       `json:"path"`
	Sandbox *wireSandbox `json:"sandbox,omitempty"`
	native  string       // the path as errors name it
}

// sayingWhere are requests with a path.
type sayingWhere interface {
	GetPath() string
	GetRawPath() []byte
	GetSandbox() *execwirev1.SandboxPolicy
}

// wire returns the place of a request as the server takes it.
func (s *fileService) wire(ctx context.Context, request sayingWhere) (wireWhere, error) {
	if strict, ok := request.(interface{ GetNoSymlinks() bool }); ok && strict.GetNoSymlinks() {
		return wireWhere{}, unsupported("no_symlinks", "follows symbolic links")
	}
	native := cmp.Or(request.GetPath(), string(request.GetRawPath()))
	where, err := s.wireText(ctx, "path", request.GetPath(), request.GetRawPath())
	if err != nil {
		return wireWhere{}, about(native, err)
	}
	sandbox, err := s.conn.sandbox(ctx, "sandbox", request.GetSandbox(), "")
	return wireWhere{Path: where, Sandbox: sandbox, native: native}, err
}

// ask makes a request about a place. What the operating system said of it is told with
// the path, as a server of ours does.
func (s *fileService) ask(ctx context.Context, method string, where wireWhere, params, result any) error {
	return about(where.native, s.conn.call(ctx, method, params, result))
}

// about adds a path to an error about it.
func about(native string, err error) error {
	st := status.Convert(err)
	if err == nil || len(st.Details()) == 0 {
		return err
	}
	native = strings.ToValidUTF8(native, "\ufffd")
	said := st.Proto()
	said.Message = native + ": " + said.GetMessage()
	resource, failed := anypb.New(&errdetails.ResourceInfo{ResourceType: "path", ResourceName: native})
	if failed == nil {
		said.Details = append(said.Details, resource)
	}
	return status.ErrorProto(said)
}

// wireText returns a path as the server takes it; it is cleaned by lexical rules, as
// the contract has it.
func (s *fileService) wireText(ctx context.Context, field, text string, raw []byte) (string, error) {
	switch {
	case text != "" && len(raw) > 0:
		return "", invalidField("raw_"+field, "is there beside "+field+": set one of them")
	case len(raw) > 0:
		text = string(raw)
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", invalidField(field, "has a NUL in it")
	}
	if strings.HasPrefix(text, "/") {
		text = path.Clean(text)
	}
	return s.conn.wirePath(ctx, field, text)
}

// unsupported is the refusal of a request that this server cannot carry out because
// of a field.
func unsupported(field, how string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
		"%s cannot be asked of this server, which %s: leave it out, or reach a server of execwire", field, how)
}

// isNewer is whether the server has the methods of the reference since June 2026:
// files in blocks, walks, and paths without links.
func (s *fileService) isNewer() bool { return s.conn.features().uris }

type createDirectoryParams struct {
	wireWhere
	Recursive bool `json:"recursive"`
}

// CreateDirectory implements FileSystemServiceServer.
func (s *fileService) CreateDirectory(ctx context.Context, request *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	if request.Permissions != nil {
		return nil, unsupported("permissions", "gives directories those of its umask")
	}
	return &execwirev1.CreateDirectoryResponse{}, s.ask(ctx, "fs/createDirectory", where, createDirectoryParams{where, request.GetRecursive()}, nil)
}

type removeParams struct {
	wireWhere
	Recursive bool `json:"recursive"`
	Force     bool `json:"force"`
}

// RemovePath implements FileSystemServiceServer.
func (s *fileService) RemovePath(ctx context.Context, request *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	return &execwirev1.RemovePathResponse{}, s.ask(ctx, "fs/remove", where, removeParams{where, request.GetRecursive(), request.GetIgnoreMissing()}, nil)
}

type copyParams struct {
	SourcePath      string       `json:"sourcePath"`
	DestinationPath string       `json:"destinationPath"`
	Recursive       bool         `json:"recursive"`
	Sandbox         *wireSandbox `json:"sandbox,omitempty"`
}

// CopyPath implements FileSystemServiceServer. How many special files were left out
// is not known.
func (s *fileService) CopyPath(ctx context.Context, request *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	params := copyParams{Recursive: request.GetRecursive()}
	var err error
	if params.SourcePath, err = s.wireText(ctx, "source_path", request.GetSourcePath(), request.GetRawSourcePath()); err != nil {
		return nil, err
	}
	if params.DestinationPath, err = s.wireText(ctx, "destination_path", request.GetDestinationPath(), request.GetRawDestinationPath()); err != nil {
		return nil, err
	}
	if params.Sandbox, err = s.conn.sandbox(ctx, "sandbox", request.GetSandbox(), ""); err != nil {
		return nil, err
	}
	native := cmp.Or(request.GetSourcePath(), string(request.GetRawSourcePath()))
	same, err := s.isSame(ctx, params, native)
	if err != nil || same {
		return &execwirev1.CopyPathResponse{}, err
	}
	return &execwirev1.CopyPathResponse{}, about(native, s.conn.call(ctx, "fs/copy", params, nil))
}

// isSame is whether a file is to be copied to itself, as far as can be known, which
// empties it on servers of the reference.
func (s *fileService) isSame(ctx context.Context, params copyParams, native string) (bool, error) {
	source, err := s.canonical(ctx, wireWhere{params.SourcePath, params.Sandbox, native})
	if err != nil {
		return false, err
	}
	destination, err := s.canonical(ctx, wireWhere{params.DestinationPath, params.Sandbox, native})
	if err != nil || source != destination {
		return false, nil // it is not there yet, or the copy says what is wrong with it
	}
	described, err := s.describe(ctx, wireWhere{params.SourcePath, params.Sandbox, native})
	return err == nil && described.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR && !described.GetIsSymlink(), err
}

// canonical is the path without links where the server can say it, and else as it is.
func (s *fileService) canonical(ctx context.Context, where wireWhere) (string, error) {
	if !s.isNewer() {
		return where.Path, nil
	}
	var result struct {
		Path string `param:"path"`
	}
	err := s.ask(ctx, "fs/canonicalize", where, where, &result)
	return result.Path, err
}

// CanonicalizePath implements FileSystemServiceServer.
func (s *fileService) CanonicalizePath(ctx context.Context, request *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	where, err := s.wire(ctx, request)
	if err != nil {
		return nil, err
	}
	if !s.isNewer() {
		return nil, failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, "this server cannot say what a path is without links")
	}
	said, err := s.canonical(ctx, where)
	if err != nil {
		return nil, err
	}
	native, err := nativePath(said)
	if err != nil {
		return nil, err
	}
	response := &execwirev1.CanonicalizePathResponse{}
	response.Path, response.RawPath = nameFields(native)
	return response, nil
}

// nameFields are the two fields that answers have for a name.
func nameFields(name string) (text string, raw []byte) {
	if text = strings.ToValidUTF8(name, "\ufffd"); text != name {
		raw = []byte(name)
	}
	return text, raw
}

// wireMetadata is the result of fs/getMetadata.
type wireMetadata struct {
	IsDirectory  bool    `param:"isDirectory"`
	IsFile       bool    `param:"isFile"`
	IsSymlink    bool    `param:"isSymlink,optional"`
	Size         *uint64 `param:"size"`
	ModifiedAtMs int64   `param:"modifiedAtMs,optional"`
}

// Permission bits, which the protocol does not tell, are taken to be these.
const (
	supposedFileMode      = 0o644
	supposedDirectoryMode = 0o755
)

// describe asks for the metadata of what a path leads to. The type of what is neither
// a file nor a directory is not known.
func (s *fileService) describe(ctx context.Context, where wireWhere) (*execwirev1.FileMetadata, error) {
	var result wireMetadata
	if err := s.ask(ctx, "fs/getMetadata", where, where, &result); err != nil {
		return nil, err
	}
	m := &execwirev1.FileMetadata{IsSymlink: result.IsSymlink, LinkCount: 1, Mode: supposedFileMode,
		ModifyTime: timestamppb.New(time.UnixMilli(result.ModifiedAtMs))}
	switch {
	case result.IsFile:
		m.Type = execwirev1.FileType_FILE_TYPE_REGULAR
	case result.IsDirectory:
		m.Type, m.Mode = execwirev1.FileType_FILE_TYPE_DIRECTORY, supposedDirectoryMode
	}
	if result.Size != nil {
		m.Size = *result.Size
	}
	m.Version = versionOf(m)
	return m, nil
}

// cannot is the refusal of a call that no server of the reference can carry out.
func cannot(what string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, "this server cannot %s: reach a server of execwire", what)
}

// RenamePath implements FileSystemServiceServer.
func (s *fileService) RenamePath(_ context.Context, request *execwirev1.RenamePathRequest) (*execwirev1.RenamePathResponse, error) {
	return nil, about(cmp.Or(request.GetSourcePath(), string(request.GetRawSourcePath())), cannot("rename files"))
}

// CreateSymlink implements FileSystemServiceServer.
func (s *fileService) CreateSymlink(_ context.Context, request *execwirev1.CreateSymlinkRequest) (*execwirev1.CreateSymlinkResponse, error) {
	return nil, about(cmp.Or(request.GetPath(), string(request.GetRawPath())), cannot("make symbolic links"))
}

// WatchDirectory implements FileSystemServiceServer.
func (s *fileService) WatchDirectory(*execwirev1.WatchDirectoryRequest, grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]) error {
	return cannot("watch directories")
}

// AwaitPaths implements FileSystemServiceServer.
func (s *fileService) AwaitPaths(*execwirev1.AwaitPathsRequest, grpc.ServerStreamingServer[execwirev1.AwaitPathsResponse]) error {
	return cannot("wait for paths")
}

// GetUpload implements FileSystemServiceServer. Such a server keeps none.
func (s *fileService) GetUpload(_ context.Context, request *execwirev1.GetUploadRequest) (*execwirev1.GetUploadResponse, error) {
	if request.GetUploadId() == "" {
		return nil, invalidField("upload_id", "is empty: name an upload")
	}
	return nil, failure(execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND, "this server keeps nothing of the upload %s: begin it anew", request.GetUploadId())
}
