package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
	return &fileStream{stream: pieces[execwirev1.DownloadFileResponse]{next: next}, first: first, cancel: cancel, leave: func() {}, limit: maxFileBytes},
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
		if err := f.streamTo(&got); err != nil {
			t.Fatal(err)
		}
		if want := string((&wholeFile{data: whole}).appendTo(nil)); got.String() != want || !ended() {
			t.Errorf("in pieces of %d: %s, want %s", size, got.String(), want)
		}
	}
}

func TestAFileThatCannotBeCompletedIsAnError(t *testing.T) {
	broken := errors.New("the disk is gone")
	f, ended := downloadOf(t, []byte("abcd"), func() (*execwirev1.DownloadFileResponse, error) { return nil, broken })
	var got bytes.Buffer
	if err := f.streamTo(&got); !errors.Is(err, broken) || !ended() {
		t.Errorf("a read error becomes %v", err)
	}
	if json.Valid(got.Bytes()) {
		t.Errorf("what was said looks whole: %s", got.String())
	}

	piece := make([]byte, 1<<20)
	f, ended = downloadOf(t, piece, func() (*execwirev1.DownloadFileResponse, error) { return content(piece), nil })
	if err := f.streamTo(io.Discard); err != errGrew || !ended() {
		t.Errorf("a file without an end becomes %v", err)
	}

	f, ended = downloadOf(t, piece, func() (*execwirev1.DownloadFileResponse, error) { return content(piece), nil })
	if err := f.streamTo(brokenWriter{}); err != errLost || !ended() {
		t.Errorf("a lost client becomes %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errLost }

// Half of an answer cannot be taken back: the connection ends.
func TestAnAnswerThatCannotBeCompletedEndsTheConnection(t *testing.T) {
	core := newCore(t, withSmallFiles)
	core.channel = failingDownload{core.channel}
	cl, _ := core.attach("")
	path := t.TempDir() + "/f"
	do(t, writeMany(path, 2<<20))
	cl.ask("fs/readFile", map[string]any{"path": path})
	if err := cl.ended(); err == nil || !strings.Contains(err.Error(), "could not be read to its end") {
		t.Errorf("the connection ended with %v", err)
	}
	if cl.pipe.code != closeInternal {
		t.Errorf("it was closed with %d", cl.pipe.code)
	}
}

// failingDownload is a core whose downloads break off after some messages.
type failingDownload struct{ grpc.ClientConnInterface }

func (c failingDownload) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err == nil && method == execwirev1.FileSystemService_DownloadFile_FullMethodName {
		return &failingStream{ClientStream: stream}, nil
	}
	return stream, err
}

type failingStream struct {
	grpc.ClientStream
	messages int
}

func (s *failingStream) RecvMsg(m any) error {
	if s.messages++; s.messages > 5 {
		return errors.New("the disk is gone")
	}
	return s.ClientStream.RecvMsg(m)
}

func TestDirectoriesBeyondTheLimitAreRefused(t *testing.T) {
	for entries, refused := range map[int]bool{maxEntries: false, maxEntries + 1: true} {
		left := entries
		files := fakeDirectory{next: func() (*execwirev1.ReadDirectoryResponse, error) {
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
		p := &fsReadDirectoryParams{Path: "/d"}
		if err := p.check(); err != nil {
			t.Fatal(err)
		}
		result, failed := p.run(t.Context(), &request{connection: &connection{fileSystem: files}})
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

// The largest file goes through in little memory.
func TestTheLargestFileIsStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	core := newCore(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, maxFileBytes))
	p := &fsReadFileParams{Path: path}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	result, failed := p.run(t.Context(), &request{connection: &connection{fileSystem: execwirev1.NewFileSystemServiceClient(core.channel)}})
	if failed != nil {
		t.Fatal(failed)
	}
	counted := &counter{t: t}
	runtime.GC()
	counted.sample(&counted.before)
	if err := result.(streamable).streamTo(counted); err != nil {
		t.Fatal(err)
	}
	if want := len(contentBegin) + 2 + (maxFileBytes+2)/3*4 + len(contentEnd); counted.bytes != want {
		t.Errorf("%d bytes were written, want %d", counted.bytes, want)
	}
	const allowed = 16 << 20
	if grown := int64(counted.most) - int64(counted.before); grown > allowed {
		t.Errorf("memory grew by %d bytes, at most %d may be", grown, allowed)
	}
}

// counter counts what is written, and looks at the memory now and then.
type counter struct {
	t             *testing.T
	bytes, writes int
	before, most  uint64
}

func (c *counter) sample(into *uint64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*into = max(*into, m.HeapAlloc)
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	if c.writes++; c.writes%500 == 0 {
		c.sample(&c.most)
	}
	return len(p), nil
}

// Answers that wait for their client take little memory, however many it asked
// for.
func TestFewFilesWaitForAClientThatDoesNotRead(t *testing.T) {
	core := newCore(t, withSmallFiles)
	dir := t.TempDir()
	do(t, writeMany(dir+"/small", 1000), writeMany(dir+"/large", 3<<20))
	r := &request{connection: &connection{fileSystem: execwirev1.NewFileSystemServiceClient(core.channel)}}
	ask := func(ctx context.Context, c call) (any, *jsonrpc.Error) {
		t.Helper()
		if err := c.(checked).check(); err != nil {
			t.Fatal(err)
		}
		return c.run(ctx, r)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errLost)
	calls := []call{&fsReadFileParams{Path: dir + "/small"}, &fsReadFileParams{Path: dir + "/large"}, &fsReadDirectoryParams{Path: dir}}
	for _, failing := range []call{&fsReadFileParams{Path: dir + "/none"}, &fsReadDirectoryParams{Path: dir + "/none"}} {
		for range maxBulk + 1 { // what fails leaves no answer that waits
			if _, failed := ask(t.Context(), failing); failed == nil || failed.Code != jsonrpc.CodeNotFound {
				t.Fatalf("a missing path is answered with %v", failed)
			}
		}
	}
	var waiting []any
	for i := range maxBulk {
		result, failed := ask(t.Context(), calls[i%len(calls)])
		if failed != nil {
			t.Fatal(failed)
		}
		waiting = append(waiting, result)
	}
	for _, result := range waiting {
		for _, c := range calls {
			if _, failed := ask(gone, c); failed == nil {
				t.Errorf("%T is prepared although %d answers wait", c, maxBulk)
			}
		}
		if n, ok := result.(noted); ok {
			n.wasSaid()
		} else if err := result.(streamable).streamTo(io.Discard); err != nil {
			t.Error(err)
		}
		next, failed := ask(t.Context(), calls[0])
		if failed != nil {
			t.Fatalf("there is no place after an answer was said: %v", failed)
		}
		t.Cleanup(next.(noted).wasSaid)
	}
}
