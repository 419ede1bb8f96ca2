package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	regular   = execwirev1.FileType_FILE_TYPE_REGULAR
	directory = execwirev1.FileType_FILE_TYPE_DIRECTORY
	symlink   = execwirev1.FileType_FILE_TYPE_SYMLINK
)

// write creates a file through the service.
func (f *fixture) write(path, content string) {
	f.t.Helper()
	if _, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: path, Data: []byte(content)}); err != nil {
		f.t.Fatal(err)
	}
}

// download receives the content and the head of a file.
func (f *fixture) download(req *execwirev1.DownloadFileRequest) (*execwirev1.FileMetadata, []byte) {
	f.t.Helper()
	stream, err := f.files.DownloadFile(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.GetHead().GetMetadata() == nil {
		f.t.Fatalf("the download begins with %v: %v", first, err)
	}
	var content []byte
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return first.GetHead().GetMetadata(), content
		}
		if n := len(m.GetData()); err != nil || n == 0 || n > 64<<10 {
			f.t.Fatalf("a message has %d bytes: %v", n, err)
		}
		content = append(content, m.GetData()...)
	}
}

func (f *fixture) entries(req *execwirev1.ReadDirectoryRequest) []*execwirev1.DirectoryEntry {
	f.t.Helper()
	stream, err := f.files.ReadDirectory(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	var all []*execwirev1.DirectoryEntry
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			slices.SortFunc(all, func(a, b *execwirev1.DirectoryEntry) int { return strings.Compare(a.GetName(), b.GetName()) })
			return all
		}
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, m.GetEntries()...)
	}
}

func TestFiles_EveryUnaryCall(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	_, err := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: dir + "/d/e", Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	f.write(dir+"/d/../d//f/", "content")
	if err := os.Symlink("f", dir+"/d/l"); err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1_000_000_000, 123_456_789)
	if err := os.Chtimes(dir+"/d/f", when, when); err != nil {
		t.Fatal(err)
	}
	read, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: dir + "/d/l"})
	if err != nil || string(read.GetData()) != "content" || read.GetMetadata().GetType() != regular {
		t.Errorf("ReadFile = %v, %v", read, err)
	}
	followed, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/d/l"})
	if m := followed.GetMetadata(); err != nil || m.GetType() != regular || !m.GetIsSymlink() || m.GetSize() != 7 ||
		!m.GetModifyTime().AsTime().Equal(when) || followed.GetLinkTarget() != "" {
		t.Errorf("GetMetadata = %v, %v", followed, err)
	}
	itself, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/d/l", NoFollow: true})
	if err != nil || itself.GetMetadata().GetType() != symlink || itself.GetLinkTarget() != "f" {
		t.Errorf("GetMetadata of the link = %v, %v", itself, err)
	}
	want := []*execwirev1.DirectoryEntry{
		{Name: "e", Type: directory, TargetType: directory}, {Name: "f", Type: regular, TargetType: regular}, {Name: "l", Type: symlink, TargetType: regular},
	}
	if got := f.entries(&execwirev1.ReadDirectoryRequest{Path: dir + "/d"}); !slices.EqualFunc(got, want, func(a, b *execwirev1.DirectoryEntry) bool { return proto.Equal(a, b) }) {
		t.Errorf("ReadDirectory = %v", got)
	}
	if _, err := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{SourcePath: dir + "/d", DestinationPath: dir + "/copy", Recursive: true}); err != nil {
		t.Error(err)
	}
	real, err := f.files.CanonicalizePath(f.ctx, &execwirev1.CanonicalizePathRequest{Path: dir + "/copy/l"})
	if err != nil || !strings.HasSuffix(real.GetPath(), "/copy/f") {
		t.Errorf("CanonicalizePath = %v, %v", real, err)
	}
	for _, req := range []*execwirev1.RemovePathRequest{{Path: dir + "/d", Recursive: true}, {Path: dir + "/d", IgnoreMissing: true}, {Path: dir + "/copy/l"}} {
		if _, err := f.files.RemovePath(f.ctx, req); err != nil {
			t.Errorf("%v: %v", req, err)
		}
	}
	if got := f.entries(&execwirev1.ReadDirectoryRequest{Path: dir}); len(got) != 1 || got[0].GetName() != "copy" {
		t.Errorf("the remaining entries are %v", got)
	}
}

func TestDownload_Complete(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if err := os.WriteFile(dir+"/f", content, 0o600); err != nil {
		t.Fatal(err)
	}
	metadata, got := f.download(&execwirev1.DownloadFileRequest{Path: dir + "/f"})
	if metadata.GetSize() != uint64(len(content)) || !bytes.Equal(got, content) {
		t.Errorf("received %d bytes of %d, and the head is %v", len(got), len(content), metadata)
	}
	size := uint64(len(content))
	tests := []struct {
		offset   uint64
		length   *uint64
		from, to uint64
	}{
		{5, nil, 5, size},
		{5, proto.Uint64(0), 5, 5},
		{5, proto.Uint64(1), 5, 6},
		{0, proto.Uint64(64<<10 + 1), 0, 64<<10 + 1},
		{size - 2, proto.Uint64(100), size - 2, size},
		{size, nil, size, size},
		{1<<63 - 1, proto.Uint64(1<<64 - 1), size, size},
	}
	for _, tt := range tests {
		_, got := f.download(&execwirev1.DownloadFileRequest{Path: dir + "/f", Offset: tt.offset, Length: tt.length})
		if !bytes.Equal(got, content[tt.from:tt.to]) {
			t.Errorf("%d bytes from %d: got %d bytes", tt.length, tt.offset, len(got))
		}
	}
}

// For a client that stops reading, the server buffers a bounded part of the file. When
// the client cancels, the call ends.
func TestDownload_ClientCancels_Ends(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dir+"/f", 1<<40); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	stream, err := f.files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: dir + "/f"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel(errors.New("enough"))
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Canceled {
		t.Errorf("the stream ended with %v", err)
	}
	// The fixture waits for the handler when it closes.
}

func uploadHead(path string) *execwirev1.UploadFileRequest {
	return &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{
		Head: &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}}}
}

func uploadData(data []byte) *execwirev1.UploadFileRequest {
	return &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: data}}
}

// upload sends messages, adds a missing end, and returns the response.
func (f *fixture) upload(messages ...*execwirev1.UploadFileRequest) (*execwirev1.UploadFileResponse, error) {
	f.t.Helper()
	if !slices.ContainsFunc(messages, func(m *execwirev1.UploadFileRequest) bool { return m.GetEnd() != nil || m.GetMessage() == nil }) && len(messages) > 0 {
		messages = append(messages, uploadEnd(nil))
	}
	return f.uploadExactly(messages...)
}

// uploadExactly sends the messages only and returns the response.
func (f *fixture) uploadExactly(messages ...*execwirev1.UploadFileRequest) (*execwirev1.UploadFileResponse, error) {
	f.t.Helper()
	stream, err := f.files.UploadFile(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			break // CloseAndRecv returns the reason
		}
	}
	return stream.CloseAndRecv()
}

func TestUpload_InPlace(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "something longer than what comes")
	if err := os.Link(dir+"/f", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	resp, err := f.upload(uploadHead(dir+"/f"), uploadData([]byte("new ")), uploadData(nil), uploadData([]byte("content")))
	if err != nil || resp.GetSize() != 11 {
		t.Errorf("UploadFile = %v, %v", resp, err)
	}
	if got, err := os.ReadFile(dir + "/other"); err != nil || string(got) != "new content" {
		t.Errorf("the file has %q: %v", got, err)
	}
}

func TestUpload_UnexpectedMessage_Fails(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	_, nothing := f.upload()
	_, headless := f.upload(uploadData([]byte("x")))
	_, twoHeads := f.upload(uploadHead(dir+"/f"), uploadHead(dir+"/f"))
	for _, err := range []error{nothing, headless, twoHeads} {
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
	}
	_, missing := f.upload(uploadHead(dir+"/none/f"), uploadData([]byte("x")))
	expectFailure(t, missing, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
}

func TestFiles_NamesNotUTF8(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	name := []byte(dir + "/bad\xff")
	if _, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{RawPath: name, Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("bad\xff", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	list := f.entries(&execwirev1.ReadDirectoryRequest{Path: dir})
	if len(list) != 2 || list[0].GetName() != "bad\uFFFD" || string(list[0].GetRawName()) != "bad\xff" || list[1].GetRawName() != nil {
		t.Errorf("the entries are %v", list)
	}
	link, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/l", NoFollow: true})
	if err != nil || string(link.GetRawLinkTarget()) != "bad\xff" || link.GetLinkTarget() != "bad\uFFFD" {
		t.Errorf("the link is %v: %v", link, err)
	}
	real, err := f.files.CanonicalizePath(f.ctx, &execwirev1.CanonicalizePathRequest{Path: dir + "/l"})
	if err != nil || !bytes.HasSuffix(real.GetRawPath(), []byte("bad\xff")) {
		t.Errorf("the path is %v: %v", real, err)
	}
	if _, err := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{RawSourcePath: name, DestinationPath: dir + "/copy"}); err != nil {
		t.Error(err)
	}
	if _, err := f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{RawPath: name}); err != nil {
		t.Error(err)
	}
	_, err = f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{RawPath: name})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
}

func TestFiles_Errors_HaveReasonAndPath(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", strings.Repeat("x", 1<<20))
	f.write(dir+"/large", strings.Repeat("x", 1<<20+1))
	if _, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: dir + "/f"}); err != nil {
		t.Errorf("a file at the limit: %v", err)
	}
	_, missing := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: dir + "/none"})
	_, device := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: "/dev/zero"})
	_, large := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: dir + "/large"})
	_, full := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: "/dev/full", Data: []byte("x")})
	_, notEmpty := f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{Path: dir})
	_, exists := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: dir})
	_, notRecursive := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{SourcePath: dir, DestinationPath: dir + "2"})
	_, intoItself := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{SourcePath: dir, DestinationPath: dir + "/d", Recursive: true})
	tests := []struct {
		err   error
		code  codes.Code
		why   execwirev1.ErrorReason
		errno string
		path  string
	}{
		{missing, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND, "ENOENT", dir + "/none"},
		{device, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE, "", "/dev/zero"},
		{large, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE, "", dir + "/large"},
		{full, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_NO_SPACE, "ENOSPC", "/dev/full"},
		{notEmpty, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_DIRECTORY_NOT_EMPTY, "ENOTEMPTY", dir},
		{exists, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS, "EEXIST", dir},
		{notRecursive, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "", dir},
		{intoItself, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF, "", dir},
	}
	for _, tt := range tests {
		expectFailure(t, tt.err, tt.code, tt.why)
		for _, detail := range status.Convert(tt.err).Details() {
			switch d := detail.(type) {
			case *errdetails.ErrorInfo:
				if d.GetMetadata()["errno"] != tt.errno {
					t.Errorf("%v: errno %q, want %q", tt.err, d.GetMetadata()["errno"], tt.errno)
				}
				if tt.why == execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE && d.GetMetadata()["limit_bytes"] != "1048576" {
					t.Errorf("the limit is missing: %v", d)
				}
			case *errdetails.ResourceInfo:
				if d.GetResourceName() != tt.path {
					t.Errorf("the resource of %v is %q", tt.err, d.GetResourceName())
				}
			}
		}
	}
}
