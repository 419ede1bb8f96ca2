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

// pieces is a stream of the core that a test makes up: next returns its messages
// and its end.
type pieces[M any] struct {
	grpc.ClientStream
	next func() (*M, error)
}

func (p pieces[M]) Recv() (*M, error) { return p.next() }

// content is a message of a download.
func content(data []byte) *execwirev1.DownloadFileResponse {
	return &execwirev1.DownloadFileResponse{Message: &execwirev1.DownloadFileResponse_Data{Data: data}}
}

// downloadOf streams what next returns. ended is how its context ended.
func downloadOf(t *testing.T, first []byte, next func() (*execwirev1.DownloadFileResponse, error)) (f *fileStream, ended func() bool) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return &fileStream{stream: pieces[execwirev1.DownloadFileResponse]{next: next}, first: first, cancel: cancel, release: func() {}, limit: 512 << 20},
		func() bool { return ctx.Err() != nil }
}

func TestPiecesOfAnySizeMakeOneText(t *testing.T) {
	whole := []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	for size := 1; size <= len(whole); size++ {
		left := whole[size:]
		f, ended := downloadOf(t, whole[:size], func() (*execwirev1.DownloadFileResponse, error) {
			if len(left) == 0 {
				return nil, io.EOF
			}
			piece := left[:min(size, len(left))]
			left = left[len(piece):]
			return content(piece), nil
		})
		var got bytes.Buffer
		if err := f.StreamTo(&got); err != nil {
			t.Fatal(err)
		}
		if want := contentBegin + `"` + base64.StdEncoding.EncodeToString(whole) + `"}`; got.String() != want || !ended() {
			t.Errorf("in pieces of %d: %s, want %s", size, got.String(), want)
		}
	}
}

func TestAFileThatCannotBeCompletedIsAnError(t *testing.T) {
	broken := errors.New("the disk is gone")
	f, ended := downloadOf(t, []byte("abcd"), func() (*execwirev1.DownloadFileResponse, error) { return nil, broken })
	var got bytes.Buffer
	if err := f.StreamTo(&got); !errors.Is(err, broken) || !ended() {
		t.Errorf("a read error becomes %v", err)
	}
	if json.Valid(got.Bytes()) {
		t.Errorf("what was said looks whole: %s", got.String())
	}

	piece := make([]byte, 1<<20)
	f, ended = downloadOf(t, piece, func() (*execwirev1.DownloadFileResponse, error) { return content(piece), nil })
	if err := f.StreamTo(io.Discard); err != errGrew || !ended() {
		t.Errorf("a file without an end becomes %v", err)
	}

	f, ended = downloadOf(t, piece, func() (*execwirev1.DownloadFileResponse, error) { return content(piece), nil })
	if err := f.StreamTo(brokenWriter{}); err != errBroken || !ended() {
		t.Errorf("a lost client becomes %v", err)
	}
}

var errBroken = errors.New("the connection was lost")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestDirectoriesBeyondTheLimitAreRefused(t *testing.T) {
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
		result, failed := New(directory, nil, 1, nil).Run(t.Context(), p)
		if refused != (failed != nil) || refused && failed.Code != jsonrpc.CodeLimitReached {
			t.Errorf("%d entries: %v", entries, failed)
		}
		if !refused && len(result.(*fsEntries).Entries) != entries {
			t.Errorf("of %d entries came %d", entries, len(result.(*fsEntries).Entries))
		}
	}
}

type fakeDirectory struct {
	execwirev1.FileSystemServiceClient
	next func() (*execwirev1.ReadDirectoryResponse, error)
}

func (f fakeDirectory) ReadDirectory(context.Context, *execwirev1.ReadDirectoryRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[execwirev1.ReadDirectoryResponse], error) {
	return pieces[execwirev1.ReadDirectoryResponse]{next: f.next}, nil
}
