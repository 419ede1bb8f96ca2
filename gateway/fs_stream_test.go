package gateway

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/testrace"
)

// A partly sent response cannot be revoked, so the connection closes.
func TestReadFile_DownloadFails_ClosesConnection(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	srv.channel = failingDownload{srv.channel}
	cl, _ := srv.attach("")
	path := t.TempDir() + "/f"
	do(t, writeMany(path, 2<<20))
	cl.ask("fs/readFile", map[string]any{"path": path})
	if err := cl.ended(); err == nil || !strings.Contains(err.Error(), "could not be read to its end") {
		t.Errorf("the connection ended with %v", err)
	}
	if cl.pipe.code != closeInternal {
		t.Errorf("the connection was closed with %d", cl.pipe.code)
	}
}

// failingDownload is a server whose downloads fail after some messages.
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

func TestReadFile_LargestFile_MemoryIsBounded(t *testing.T) {
	testrace.Slow(t)
	srv := newTestServer(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, maxContent))
	result, failed := filesOf(srv).Run(t.Context(), fileCall(t, "fs/readFile", path))
	if failed != nil {
		t.Fatal(failed)
	}
	counted := &counter{t: t}
	runtime.GC()
	counted.sample(&counted.before)
	if err := result.(call.Streamable).StreamTo(counted); err != nil {
		t.Fatal(err)
	}
	if want := len(`{"dataBase64":""}`) + (maxContent+2)/3*4; counted.bytes != want {
		t.Errorf("%d bytes were written, want %d", counted.bytes, want)
	}
	const allowed = 16 << 20
	if grown := int64(counted.most) - int64(counted.before); grown > allowed {
		t.Errorf("memory grew by %d bytes, want at most %d", grown, allowed)
	}
}

// counter counts written bytes and samples the memory use.
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

// Responses that wait for a slow client use bounded memory, however many were
// requested.
func TestReadFile_SlowReader_BoundsPreparedResponses(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	dir := t.TempDir()
	do(t, writeMany(dir+"/small", 1000), writeMany(dir+"/large", 3<<20))
	service := filesOf(srv)
	ask := service.Run
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errLost)
	calls := []files.Call{fileCall(t, "fs/readFile", dir+"/small"), fileCall(t, "fs/readFile", dir+"/large"), fileCall(t, "fs/readDirectory", dir)}
	for _, failing := range []files.Call{fileCall(t, "fs/readFile", dir+"/none"), fileCall(t, "fs/readDirectory", dir+"/none")} {
		for range call.MaxLarge + 1 { // a failed call leaves no response that waits
			if _, failed := ask(t.Context(), failing); failed == nil || failed.Code != jsonrpc.CodeNotFound {
				t.Fatalf("a missing path: %v", failed)
			}
		}
	}
	var waiting []any
	for i := range call.MaxLarge {
		result, failed := ask(t.Context(), calls[i%len(calls)])
		if failed != nil {
			t.Fatal(failed)
		}
		waiting = append(waiting, result)
	}
	for _, result := range waiting {
		for _, c := range calls {
			if _, failed := ask(gone, c); failed == nil {
				t.Errorf("%T is prepared although %d responses wait", c, call.MaxLarge)
			}
		}
		if n, ok := result.(call.SendObserver); ok {
			n.Sent()
		} else if err := result.(call.Streamable).StreamTo(io.Discard); err != nil {
			t.Error(err)
		}
		next, failed := ask(t.Context(), calls[0])
		if failed != nil {
			t.Fatalf("no slot is free after a response was sent: %v", failed)
		}
		t.Cleanup(next.(call.SendObserver).Sent)
	}
}

// filesOf serves file calls without a connection.
func filesOf(srv *testServer) *files.Service {
	return files.New(execwirev1.NewFileSystemServiceClient(srv.channel), unlimited{}, nil, call.NewShared(DefaultAnswers))
}

// unlimited is a connection whose responses have the limit of the protocol.
type unlimited struct{ call.Connection }

func (unlimited) ContentLimit() int { return maxContent }

// fileCall is a call on one path.
func fileCall(t *testing.T, method, path string) files.Call {
	t.Helper()
	decoded, err := methods[method].decode([]byte(toJSON(map[string]any{"path": path})), files.New(nil, nil, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	return decoded.(files.Call)
}

// A large file is streamed with little garbage: uncollected garbage is memory
// use, too.
func TestReadFile_LargeFile_AllocatesFewBuffers(t *testing.T) {
	const size = 64 << 20
	srv := newTestServer(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, failed := filesOf(srv).Run(t.Context(), fileCall(t, "fs/readFile", path))
	if failed != nil {
		t.Fatal(failed)
	}
	if err := result.(call.Streamable).StreamTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/4 {
		t.Errorf("%d bytes were allocated for a file of %d", allocated, size)
	}
}
