package client

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestFileErrors_MatchPackageFS(t *testing.T) {
	for reason, want := range map[execwirev1.ErrorReason]error{
		execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND:      fs.ErrNotExist,
		execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS: fs.ErrExist,
		execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:   fs.ErrPermission,
		execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:    fs.ErrPermission,
		execwirev1.ErrorReason_ERROR_REASON_NO_SPACE:            nil,
	} {
		err := FromRPC(serverError(codes.FailedPrecondition, reason))
		for _, target := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission} {
			if got := errors.Is(err, target); got != (target == want) {
				t.Errorf("%v is %v: %v", reason, target, got)
			}
		}
	}
}

// A lost connection is retried, a rejection is not.
func TestFileCalls_ReadOnly_AreRetried(t *testing.T) {
	found := func(r *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
		return &execwirev1.GetMetadataResponse{
			Metadata: &execwirev1.FileMetadata{Size: uint64(len(r.GetRawPath()))}, RawLinkTarget: []byte("\xff")}, nil
	}
	missing := serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
	c := newFakeFiles(t, &fakeFiles{metadata: []func(*execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error){
		func(*execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) { return nil, errCut },
		found,
		func(*execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) { return nil, missing },
	}})
	info, err := c.Lstat(t.Context(), "/a\xff")
	if err != nil || info.Metadata.GetSize() != 3 || info.LinkTarget != "\xff" {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := c.Stat(t.Context(), "/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	cause := errors.New("the test is tired")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := c.Stat(ctx, "/a"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// Names from a server must not lead the client to other paths.
func TestReadDir_InvalidNames_Fail(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00"} {
		c := newFakeFiles(t, &fakeFiles{entries: []*execwirev1.DirectoryEntry{{Name: "good"}, {Name: name}}})
		if entries, err := c.ReadDir(t.Context(), "/"); err == nil || !strings.Contains(err.Error(), "is not a valid name") {
			t.Errorf("%q: got %v, %v", name, entries, err)
		}
	}
}

func TestDownload_ResumesAfterCut(t *testing.T) {
	const content = "0123456789"
	c := newFakeFiles(t, &fakeFiles{downloads: []func(*execwirev1.DownloadFileRequest, downloadStream) error{
		sendsFile(content, 0, errCut), sendsFile(content, 3, errCut), sendsFile(content, 4, errCut), sendsFile(content, 99, nil)}})
	var got strings.Builder
	var heads, progress int64
	length := int64(8)
	n, err := c.Download(t.Context(), "/f", &got, DownloadOptions{
		Offset: 1, Length: &length,
		OnHead:     func(m *execwirev1.FileMetadata) error { heads += int64(m.GetMode()); return nil },
		OnProgress: func(written int64) { progress = written },
	})
	if err != nil || n.Size != 8 || got.String() != content[1:9] || heads != 0o640 || progress != 8 {
		t.Errorf("got %d bytes, %q, %v, %d heads, progress %d", n.Size, got.String(), err, heads, progress)
	}
}

func TestDownload_WriterError_EndsDownload(t *testing.T) {
	full := errors.New("full")
	c := newFakeFiles(t, &fakeFiles{downloads: []func(*execwirev1.DownloadFileRequest, downloadStream) error{sendsFile("0123", 99, nil)}})
	_, err := c.Download(t.Context(), "/f", writerFunc(func([]byte) (int, error) { return 0, full }), DownloadOptions{})
	if !errors.Is(err, full) || !errors.As(err, new(*WriteError)) {
		t.Errorf("got %v", err)
	}
	if data, err := c.ReadFile(t.Context(), "/f"); string(data) != "0123" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
}

// A download is complete only with an end message that confirms its size and digest.
func TestDownload_Incomplete_Fails(t *testing.T) {
	length := int64(3)
	for what, tt := range map[string]struct {
		messages []*execwirev1.DownloadFileResponse
		options  DownloadOptions
		wantText string
	}{
		"nothing":            {nil, DownloadOptions{}, "is complete"},
		"no end":             {[]*execwirev1.DownloadFileResponse{headMessage("0123"), dataMessage("0123")}, DownloadOptions{}, "is complete"},
		"no head":            {[]*execwirev1.DownloadFileResponse{dataMessage("0123"), endMessage("0123")}, DownloadOptions{}, "before the head"},
		"data after the end": {[]*execwirev1.DownloadFileResponse{headMessage(""), endMessage(""), dataMessage("0")}, DownloadOptions{}, "after the end"},
		"more than asked":    {[]*execwirev1.DownloadFileResponse{headMessage("0123"), dataMessage("0123"), endMessage("0123")}, DownloadOptions{Length: &length}, "more than"},
		"another digest":     {[]*execwirev1.DownloadFileResponse{headMessage("0123"), dataMessage("0123"), endMessage("012")}, DownloadOptions{}, "SHA-256"},
	} {
		c := newFakeFiles(t, &fakeFiles{downloads: []func(*execwirev1.DownloadFileRequest, downloadStream) error{sendsParts(tt.messages...)}})
		var got strings.Builder
		if n, err := c.Download(t.Context(), "/f", &got, tt.options); err == nil || !strings.Contains(err.Error(), tt.wantText) {
			t.Errorf("%s: %d bytes, %v", what, n.Size, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
