package client

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// plainFiles is a file system service with the features of an exec-server protocol
// server: files are written in place, and directories have no permission bits.
type plainFiles struct {
	execwirev1.UnimplementedFileSystemServiceServer

	mu          sync.Mutex
	files       map[string]string // guarded by mu
	directories map[string]bool   // guarded by mu
	links       map[string]bool   // guarded by mu
}

func refusal(code codes.Code, reason string) error {
	st, err := status.New(code, "refused").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: reason})
	if err != nil {
		return err
	}
	return st.Err()
}

var (
	errNotImplemented = refusal(codes.Unimplemented, "NOT_IMPLEMENTED")
	errNotFound       = refusal(codes.NotFound, "PATH_NOT_FOUND")
)

func (f *plainFiles) UploadFile(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]) error {
	first, err := stream.Recv()
	if err != nil || first.GetHead().GetMode() != execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE || first.GetHead().Permissions != nil {
		return errNotImplemented
	}
	content := ""
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if message.GetEnd() != nil {
			break
		}
		content += string(message.GetData())
	}
	f.mu.Lock()
	f.files[first.GetHead().GetPath()] = content
	f.mu.Unlock()
	return stream.SendAndClose(&execwirev1.UploadFileResponse{Size: uint64(len(content))})
}

func (f *plainFiles) CreateDirectory(_ context.Context, request *execwirev1.CreateDirectoryRequest) (*execwirev1.CreateDirectoryResponse, error) {
	if request.Permissions != nil {
		return nil, errNotImplemented
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.directories[request.GetPath()] = true
	return &execwirev1.CreateDirectoryResponse{}, nil
}

func (f *plainFiles) CanonicalizePath(context.Context, *execwirev1.CanonicalizePathRequest) (*execwirev1.CanonicalizePathResponse, error) {
	return nil, errNotImplemented
}

func (f *plainFiles) GetMetadata(_ context.Context, request *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &execwirev1.FileMetadata{Type: execwirev1.FileType_FILE_TYPE_REGULAR, Mode: 0o644, Size: uint64(len(f.files[request.GetPath()]))}
	switch _, ok := f.files[request.GetPath()]; {
	case f.links[request.GetPath()]:
		m.Type = execwirev1.FileType_FILE_TYPE_SYMLINK
	case f.directories[request.GetPath()]:
		m.Type = execwirev1.FileType_FILE_TYPE_DIRECTORY
	case !ok:
		return nil, errNotFound
	}
	return &execwirev1.GetMetadataResponse{Metadata: m}, nil
}

func (f *plainFiles) DownloadFile(request *execwirev1.DownloadFileRequest, stream downloadStream) error {
	f.mu.Lock()
	content := f.files[request.GetPath()]
	f.mu.Unlock()
	return errors.Join(stream.Send(headMessage(content)), stream.Send(dataMessage(content)), stream.Send(endMessage(content)))
}

func newPlainFiles(t *testing.T) (*plainFiles, *Client) {
	files := &plainFiles{files: map[string]string{}, directories: map[string]bool{}, links: map[string]bool{}}
	_, c := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, files) })
	return files, c
}

// TestPushInPlace requires only what a server of the exec-server protocol supports.
func TestPushInPlace(t *testing.T) {
	files, c := newPlainFiles(t)
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/file", []byte("said"), 0o755),
		os.WriteFile(dir+"/a/b/large", make([]byte, 2*resumeBytes), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Push(t.Context(), dir, "/there", TransferOptions{Recursive: true}); Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		t.Errorf("to put files in their places is %v", err)
	}
	if len(files.files)+len(files.directories) > 0 {
		t.Errorf("it left %v, %v", files.files, files.directories)
	}
	done, err := c.Push(t.Context(), dir, "/there", TransferOptions{Recursive: true, InPlace: true})
	if err != nil || done.Files != 2 || done.Directories != 3 {
		t.Fatalf("done are %+v, %v", done, err)
	}
	if files.files["/there/a/file"] != "said" || len(files.files["/there/a/b/large"]) != 2*resumeBytes ||
		!slices.Equal(slices.Sorted(maps.Keys(files.directories)), []string{"/there", "/there/a", "/there/a/b"}) {
		t.Errorf("there are %v, %v", slices.Collect(maps.Keys(files.files)), files.directories)
	}
	for _, options := range []TransferOptions{{InPlace: true, Preserve: true}, {InPlace: true, NoReplace: true}, {InPlace: true, Update: true}, {InPlace: true, Checksum: true}} {
		if _, err := c.Push(t.Context(), dir, "/there", options); !errors.Is(err, errInPlace) {
			t.Errorf("%+v is %v", options, err)
		}
	}
}

// Pull continues if the server cannot resolve links.
func TestPull_RealPathUnsupported(t *testing.T) {
	files, c := newPlainFiles(t)
	files.files["/there"], files.links["/link"] = "said", true
	path := filepath.Join(t.TempDir(), "here")
	if _, err := c.Pull(t.Context(), "/there", path, TransferOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "said" {
		t.Errorf("got %q, %v", got, err)
	}
	for from, reason := range map[string]execwirev1.ErrorReason{
		"/link": execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, "/none": execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND,
	} {
		if _, err := c.Pull(t.Context(), from, path, TransferOptions{}); Reason(err) != reason {
			t.Errorf("%s is %v", from, err)
		}
	}
}

// ReadDirectory lists links to directories as directories.
func (f *plainFiles) ReadDirectory(request *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &execwirev1.ReadDirectoryResponse{}
	for kind, paths := range map[execwirev1.FileType][]string{
		execwirev1.FileType_FILE_TYPE_REGULAR:   slices.Collect(maps.Keys(f.files)),
		execwirev1.FileType_FILE_TYPE_DIRECTORY: slices.Concat(slices.Collect(maps.Keys(f.directories)), slices.Collect(maps.Keys(f.links))),
	} {
		for _, path := range paths {
			if filepath.Dir(path) == request.GetPath() {
				response.Entries = append(response.Entries, &execwirev1.DirectoryEntry{Name: filepath.Base(path), Type: kind, TargetType: kind})
			}
		}
	}
	return stream.Send(response)
}

func (f *plainFiles) RemovePath(_ context.Context, request *execwirev1.RemovePathRequest) (*execwirev1.RemovePathResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.files {
		if path == request.GetPath() || strings.HasPrefix(path, request.GetPath()+"/") {
			delete(f.files, path)
		}
	}
	return &execwirev1.RemovePathResponse{}, nil
}

// A link is copied over a file, and a directory over a link to elsewhere, for which the
// server returns too little information.
func TestPushInPlace_LinkUnsupported_RemovesNothing(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		for what, make := range map[string]func(dir string) error{
			"a link":      func(dir string) error { return os.Symlink("file", dir+"/link") },
			"a directory": func(dir string) error { return os.Mkdir(dir+"/away", 0o755) },
		} {
			files, c := newPlainFiles(t)
			files.directories["/there"], files.files["/there/link"] = true, "kept"
			files.links["/there/away"], files.files["/there/away/precious"] = true, "kept"
			before := maps.Clone(files.files)
			dir := t.TempDir()
			if err := make(dir); err != nil {
				t.Fatal(err)
			}
			done, err := c.Push(t.Context(), dir, "/there", TransferOptions{Recursive: true, InPlace: true, Delete: deletes})
			if err == nil || done.Deleted > 0 || !maps.Equal(files.files, before) {
				t.Errorf("%s: done are %+v, %v, there are %v", what, done, err, files.files)
			}
		}
	}
}
