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
)

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

// The largest file goes through in little memory.
func TestTheLargestFileIsStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	core := newCore(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, maxContent))
	result, failed := filesOf(core).Run(t.Context(), fileCall(t, "fs/readFile", path))
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
	service := filesOf(core)
	ask := service.Run
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errLost)
	calls := []files.Call{fileCall(t, "fs/readFile", dir+"/small"), fileCall(t, "fs/readFile", dir+"/large"), fileCall(t, "fs/readDirectory", dir)}
	for _, failing := range []files.Call{fileCall(t, "fs/readFile", dir+"/none"), fileCall(t, "fs/readDirectory", dir+"/none")} {
		for range call.MaxLarge + 1 { // what fails leaves no answer that waits
			if _, failed := ask(t.Context(), failing); failed == nil || failed.Code != jsonrpc.CodeNotFound {
				t.Fatalf("a missing path is answered with %v", failed)
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
				t.Errorf("%T is prepared although %d answers wait", c, call.MaxLarge)
			}
		}
		if n, ok := result.(call.SendObserver); ok {
			n.Sent()
		} else if err := result.(call.Streamable).StreamTo(io.Discard); err != nil {
			t.Error(err)
		}
		next, failed := ask(t.Context(), calls[0])
		if failed != nil {
			t.Fatalf("there is no place after an answer was said: %v", failed)
		}
		t.Cleanup(next.(call.SendObserver).Sent)
	}
}

// filesOf serves calls on files of a core, without a connection.
func filesOf(core *core) *files.Service {
	return files.New(execwirev1.NewFileSystemServiceClient(core.channel), unlimited{}, 1, call.NewShared(DefaultAnswers))
}

// unlimited is a connection whose answers have the limit of the protocol.
type unlimited struct{ call.Connection }

func (unlimited) ContentLimit() int { return maxContent }

// fileCall is a call on one path.
func fileCall(t *testing.T, method, path string) files.Call {
	t.Helper()
	decoded, err := methods[method].decode([]byte(toJSON(map[string]any{"path": path})), files.New(nil, nil, 1, nil))
	if err != nil {
		t.Fatal(err)
	}
	return decoded.(files.Call)
}

// A large file leaves little garbage on its way: what the collector lets pile up
// is memory, too.
func TestALargeFileIsStreamedThroughFewBuffers(t *testing.T) {
	const size = 64 << 20
	core := newCore(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, failed := filesOf(core).Run(t.Context(), fileCall(t, "fs/readFile", path))
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
