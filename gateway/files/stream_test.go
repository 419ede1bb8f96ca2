package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// fakeStream is a stream of server messages: next returns them and the final error.
type fakeStream[M any] struct {
	grpc.ClientStream
	next func() (*M, error)
}

func (p fakeStream[M]) Recv() (*M, error) { return p.next() }

func dataMessage(data []byte) *execwirev1.DownloadFileResponse {
	return &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Data{Data: data}}
}

// newDownload streams what next returns. ended reports whether its context ended.
func newDownload(t *testing.T, first []byte, next func() (*execwirev1.DownloadFileResponse, error)) (f *fileStream, ended func() bool) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return &fileStream{stream: fakeStream[execwirev1.DownloadFileResponse]{next: next}, first: first, cancel: cancel, release: func() {}, limit: 512 << 20},
		func() bool { return ctx.Err() != nil }
}

func TestFileStream_AnyChunkSize_EncodesWholeFile(t *testing.T) {
	whole := []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	for size := 1; size <= len(whole); size++ {
		left := whole[size:]
		f, ended := newDownload(t, whole[:size], func() (*execwirev1.DownloadFileResponse, error) {
			if len(left) == 0 {
				return nil, io.EOF
			}
			chunk := left[:min(size, len(left))]
			left = left[len(chunk):]
			return dataMessage(chunk), nil
		})
		var got bytes.Buffer
		if err := f.StreamTo(&got); err != nil {
			t.Fatal(err)
		}
		if want := contentBegin + `"` + base64.StdEncoding.EncodeToString(whole) + `"}`; got.String() != want || !ended() {
			t.Errorf("in chunks of %d: %s, want %s", size, got.String(), want)
		}
	}
}

func TestFileStream_Incomplete_Fails(t *testing.T) {
	broken := errors.New("the disk is gone")
	f, ended := newDownload(t, []byte("abcd"), func() (*execwirev1.DownloadFileResponse, error) { return nil, broken })
	var got bytes.Buffer
	if err := f.StreamTo(&got); !errors.Is(err, broken) || !ended() {
		t.Errorf("after a read error StreamTo returned %v", err)
	}
	if json.Valid(got.Bytes()) {
		t.Errorf("the truncated response is valid JSON: %s", got.String())
	}

	chunk := make([]byte, 1<<20)
	f, ended = newDownload(t, chunk, func() (*execwirev1.DownloadFileResponse, error) { return dataMessage(chunk), nil })
	if err := f.StreamTo(io.Discard); err != errGrew || !ended() {
		t.Errorf("for a file that grows StreamTo returned %v", err)
	}

	f, ended = newDownload(t, chunk, func() (*execwirev1.DownloadFileResponse, error) { return dataMessage(chunk), nil })
	if err := f.StreamTo(brokenWriter{}); err != errConnectionLost || !ended() {
		t.Errorf("after a lost connection StreamTo returned %v", err)
	}
}

var errConnectionLost = errors.New("the connection was lost")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errConnectionLost }

func TestReadDirectory_AboveLimit_Fails(t *testing.T) {
	for entries, refused := range map[int]bool{maxEntries: false, maxEntries + 1: true} {
		left := entries
		directory := fakeDirectory{next: func() (*execwirev1.ReadDirectoryResponse, error) {
			if left == 0 {
				return nil, io.EOF
			}
			n := min(left, 1000)
			left -= n
			some := make([]*execwirev1.DirectoryEntry, n)
			for i := range some {
				some[i] = &execwirev1.DirectoryEntry{Name: "f", Type: execwirev1.FileType_FILE_TYPE_REGULAR, TargetType: execwirev1.FileType_FILE_TYPE_REGULAR}
			}
			return &execwirev1.ReadDirectoryResponse{Entries: some}, nil
		}}
		p := &fsReadDirectoryParams{Path: param.Path{Native: "/d"}}
		result, failed := New(directory, nil, nil, nil).Run(t.Context(), p)
		if refused != (failed != nil) || refused && failed.Code != jsonrpc.CodeLimitReached {
			t.Errorf("%d entries: %v", entries, failed)
		}
		if !refused && len(result.(*fsEntries).Entries) != entries {
			t.Errorf("want %d entries, got %d", entries, len(result.(*fsEntries).Entries))
		}
	}
}

type fakeDirectory struct {
	execwirev1.FileSystemServiceClient
	next func() (*execwirev1.ReadDirectoryResponse, error)
}

func (f fakeDirectory) ReadDirectory(context.Context, *execwirev1.ReadDirectoryRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[execwirev1.ReadDirectoryResponse], error) {
	return fakeStream[execwirev1.ReadDirectoryResponse]{next: f.next}, nil
}
