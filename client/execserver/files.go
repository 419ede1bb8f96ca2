package execserver

import (
	"cmp"
	"context"
	"path"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fileService implements calls on files by the methods fs/… of the reference. What those
// cannot do, such as renaming, or replacing a file in one step, is rejected before
// anything is done.
type fileService struct {
	execwirev1.UnimplementedFileSystemServiceServer
	conn *Conn
}

// target is a path of a request, as parameters have it.
type target struct {
	Path    string       `json:"path"`
	Sandbox *wireSandbox `json:"sandbox,omitempty"`
	native  string       // the path, for errors
	link    *link        // for requests about it
}

// pathRequest is a request with a path.
type pathRequest interface {
	GetPath() string
	GetRawPath() []byte
	GetSandbox() *execwirev1.SandboxPolicy
}

// target returns the path of a request.
func (s *fileService) target(ctx context.Context, request pathRequest) (target, error) {
	if strict, ok := request.(interface{ GetNoSymlinks() bool }); ok && strict.GetNoSymlinks() {
		return target{}, unsupported("no_symlinks", "follows symbolic links")
	}
	l, err := s.conn.current(ctx)
	if err != nil {
		return target{}, err
	}
	return newTarget(l, "path", request.GetPath(), request.GetRawPath(), request.GetSandbox())
}

// newTarget returns a path, cleaned lexically. field is that of the request.
func newTarget(l *link, field, text string, raw []byte, sandbox *execwirev1.SandboxPolicy) (t target, err error) {
	if text != "" && len(raw) > 0 {
		return t, invalidField("raw_"+field, "is there beside "+field+": set one of them")
	}
	t.link, t.native = l, cmp.Or(text, string(raw))
	if strings.IndexByte(t.native, 0) >= 0 {
		return t, invalidField(field, "has a NUL in it")
	}
	clean := t.native
	if strings.HasPrefix(clean, "/") {
		clean = path.Clean(clean)
	}
	if t.Path, err = wirePath(l, field, clean); err != nil {
		return t, err
	}
	t.Sandbox, err = newSandbox(l, "sandbox", sandbox, "")
	return t, err
}

// ask makes a request about a path. Errors name the path, as those of an execwire server.
func (s *fileService) ask(ctx context.Context, method string, t target, params, result any) error {
	err := s.conn.call(ctx, t.link, method, params, result)
	st := status.Convert(err)
	if err == nil || len(st.Details()) == 0 {
		return err
	}
	native := strings.ToValidUTF8(t.native, "\ufffd")
	named := st.Proto()
	named.Message = native + ": " + named.GetMessage()
	resource, failed := anypb.New(&errdetails.ResourceInfo{ResourceType: "path", ResourceName: native})
	if failed == nil {
		named.Details = append(named.Details, resource)
	}
	return status.ErrorProto(named)
}

// unsupported is the error for a field that the server does not support.
func unsupported(field, how string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
		"this server does not support %s, it %s: leave it out, or reach an execwire server by "+grpcURLs, field, how)
}

type createDirectoryParams struct {
	target
	Recursive bool `json:"recursive"`
}

// CreateDirectory implements FileSystemServiceServer.
func (s *fileService) CreateDirectory(ctx context.Context, request *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	t, err := s.target(ctx, request)
	if err != nil {
		return nil, err
	}
	if request.Permissions != nil {
		return nil, unsupported("permissions", "gives directories those of its umask")
	}
	return &execwirev1.CreateDirectoryResponse{}, s.ask(ctx, "fs/createDirectory", t, createDirectoryParams{t, request.GetRecursive()}, nil)
}

type removeParams struct {
	target
	Recursive bool `json:"recursive"`
	Force     bool `json:"force"`
}

// RemovePath implements FileSystemServiceServer.
func (s *fileService) RemovePath(ctx context.Context, request *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	t, err := s.target(ctx, request)
	if err != nil {
		return nil, err
	}
	return &execwirev1.RemovePathResponse{}, s.ask(ctx, "fs/remove", t, removeParams{t, request.GetRecursive(), request.GetIgnoreMissing()}, nil)
}

type copyParams struct {
	SourcePath      string       `json:"sourcePath"`
	DestinationPath string       `json:"destinationPath"`
	Recursive       bool         `json:"recursive"`
	Sandbox         *wireSandbox `json:"sandbox,omitempty"`
}

// CopyPath implements FileSystemServiceServer. The number of omitted special files is not
// known.
func (s *fileService) CopyPath(ctx context.Context, request *execwirev1.CopyPathRequest) (*execwirev1.CopyPathResponse, error) {
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, err
	}
	source, err := newTarget(l, "source_path", request.GetSourcePath(), request.GetRawSourcePath(), request.GetSandbox())
	if err != nil {
		return nil, err
	}
	destination, err := newTarget(l, "destination_path", request.GetDestinationPath(), request.GetRawDestinationPath(), request.GetSandbox())
	if err != nil {
		return nil, err
	}
	same, err := s.isSameFile(ctx, source, destination)
	if err != nil || same {
		return &execwirev1.CopyPathResponse{}, err
	}
	params := copyParams{source.Path, destination.Path, request.GetRecursive(), source.Sandbox}
	return &execwirev1.CopyPathResponse{}, s.ask(ctx, "fs/copy", source, params, nil)
}

// isSameFile reports, as far as can be known, whether a file would be copied to itself,
// which empties it on servers of the reference.
func (s *fileService) isSameFile(ctx context.Context, source, destination target) (bool, error) {
	from, err := s.canonicalize(ctx, source)
	if err != nil {
		return false, err
	}
	to, err := s.canonicalize(ctx, destination)
	if err != nil || from != to {
		return false, nil // it does not exist yet, or the copy returns the error
	}
	m, err := s.describe(ctx, source)
	return m.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR && !m.GetIsSymlink(), err
}

// canonicalize returns the path without links; unchanged if the server cannot tell.
func (s *fileService) canonicalize(ctx context.Context, t target) (string, error) {
	if !t.link.peer.uris {
		return t.Path, nil
	}
	var result struct {
		Path string `param:"path"`
	}
	err := s.ask(ctx, "fs/canonicalize", t, t, &result)
	return result.Path, err
}

// CanonicalizePath implements FileSystemServiceServer.
func (s *fileService) CanonicalizePath(ctx context.Context, request *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	t, err := s.target(ctx, request)
	if err != nil {
		return nil, err
	}
	if !t.link.peer.uris {
		return nil, unsupported("the path without links", "does not resolve them")
	}
	wire, err := s.canonicalize(ctx, t)
	if err != nil {
		return nil, err
	}
	native, err := nativePath(wire)
	if err != nil {
		return nil, s.conn.broken(t.link, err)
	}
	response := &execwirev1.CanonicalizePathResponse{}
	response.Path, response.RawPath = nameFields(native)
	return response, nil
}

// nameFields returns the two fields of a name in responses.
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

// The protocol does not report permission bits. They are assumed to be these.
const (
	assumedFileMode      = 0o644
	assumedDirectoryMode = 0o755
)

// describe returns the metadata of what a path leads to. The type of special files is not
// known.
func (s *fileService) describe(ctx context.Context, t target) (*execwirev1.FileMetadata, error) {
	var result wireMetadata
	if err := s.ask(ctx, "fs/getMetadata", t, t, &result); err != nil {
		return nil, err
	}
	m := &execwirev1.FileMetadata{IsSymlink: result.IsSymlink, LinkCount: 1, Mode: assumedFileMode,
		ModifyTime: timestamppb.New(time.UnixMilli(result.ModifiedAtMs))}
	switch {
	case result.IsFile:
		m.Type = execwirev1.FileType_FILE_TYPE_REGULAR
	case result.IsDirectory:
		m.Type, m.Mode = execwirev1.FileType_FILE_TYPE_DIRECTORY, assumedDirectoryMode
	}
	if result.Size != nil {
		m.Size = *result.Size
	}
	m.Version = versionOf(m)
	return m, nil
}

// describeLink is describe of a link itself, if the path is one.
func (s *fileService) describeLink(ctx context.Context, t target) (*execwirev1.FileMetadata, error) {
	m, err := s.describe(ctx, t)
	if m.GetIsSymlink() {
		m.Type, m.Size = execwirev1.FileType_FILE_TYPE_SYMLINK, 0
	}
	return m, err
}
