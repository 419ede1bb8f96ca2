package relay

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	relayharness "github.com/execwire/execwire/relay/harness"
)

// dialHarness connects to the executor of a fleet.
func dialHarness(f *harness.Fleet, t testing.TB) *relayharness.Harness {
	t.Helper()
	h, err := relayharness.Dial(harness.Context(t), relayharness.Options{URL: strings.TrimPrefix(f.Server(t), "relay+")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// clientOn is a client whose connection is a stream of h.
func clientOn(t testing.TB, h *relayharness.Harness) *client.Client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return h.Connect(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client.New(conn)
}

func remoteCommand(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
		Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: harness.Environment()}}}}
}

// stuck is a writer that blocks until it is released.
type stuck struct {
	began chan struct{}
	once  sync.Once
	goOn  chan struct{}
	bytes int
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	<-s.goOn
	s.bytes += len(p)
	return len(p), nil
}

// One of 64 streams on one executor and websocket is not read. The others are not delayed, and
// it has lost nothing when it is read in the end.
func TestRelay_StalledStream_DelaysNoOther(t *testing.T) {
	const streams = 64
	size, flood := 1<<20, 64<<20
	if testing.Short() {
		size, flood = 64<<10, 16<<20
	}
	f := harness.NewFleet(t)
	h := dialHarness(f, t)
	ctx := harness.Context(t)
	slowly := &stuck{began: make(chan struct{}), goOn: make(chan struct{})}
	stalled := make(chan error, 1)
	c := clientOn(t, h)
	go func() {
		exit, err := c.Run(ctx, client.RunOptions{Process: remoteCommand(harness.Program("flood", "-bytes", fmt.Sprint(flood))...), Stdout: slowly})
		if err == nil && (exit.Code != 0 || slowly.bytes != flood) {
			err = fmt.Errorf("it ended with %d after %d bytes", exit.Code, slowly.bytes)
		}
		stalled <- err
	}()
	<-slowly.began
	var running sync.WaitGroup
	for i := range streams - 1 {
		c := clientOn(t, h)
		running.Go(func() {
			var out strings.Builder
			script := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; exit %d", size, i)
			exit, err := c.Run(ctx, client.RunOptions{Process: remoteCommand(harness.Shell(script)...), Stdout: &out})
			if err != nil || exit.Code != i || out.String() != strings.Repeat("x", size) {
				t.Errorf("stream %d: %+v, %v, %d bytes", i, exit, err, out.Len())
			}
		})
	}
	running.Wait()
	select {
	case err := <-stalled:
		t.Errorf("the stalled stream ended: %v", err)
	default:
	}
	close(slowly.goOn)
	if err := <-stalled; err != nil {
		t.Error(err)
	}
}

// The relay does not retain forwarded data.
func TestRelay_LargeTransfer_UsesBoundedMemory(t *testing.T) {
	harness.Slow(t) // the race detector takes several times the memory
	size := int64(256 << 20)
	if harness.Soak() {
		size = 1 << 30
	}
	f := harness.NewFleet(t)
	if got := harness.Run(t, nil, append(f.Through("--"), "true")...); got != (harness.Result{}) {
		t.Fatalf("run: %+v", got)
	}
	hub, executor := harness.ProcStat{Tb: t, Pid: f.Hub.Process.Pid}, harness.ProcStat{Tb: t, Pid: f.Executor.ServerPID(t)}
	beforeHub, beforeExecutor := hub.Peak(), executor.Peak()
	c := harness.NewCommand(append(f.Through("--"), harness.Program("flood", "-bytes", fmt.Sprint(size))...)...)
	count := &countingWriter{}
	c.Stdout = count
	c.Launch(t)
	if code := c.Await(t); code != 0 || count.bytes != size {
		t.Errorf("it ended with %d after %d bytes of %d: %s", code, count.bytes, size, c.Errors.String())
	}
	for name, grown := range map[string]int64{"hub": hub.Peak() - beforeHub, "executor": executor.Peak() - beforeExecutor} {
		if grown > 64<<20 {
			t.Errorf("the %s used %d MiB more", name, grown>>20)
		}
		t.Logf("the %s took %d MiB more", name, grown>>20)
	}
}

// countingWriter counts the bytes written.
type countingWriter struct{ bytes int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	return len(p), nil
}
