package fileworker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/server/fileworker"
)

// workerVerb runs this program as a worker of tests, and muteVerb as one that never answers.
const (
	workerVerb = "fileworker-test-worker"
	muteVerb   = "fileworker-test-mute"
)

// testTimeout is how long a test waits for an expected event.
const testTimeout = 2 * time.Minute

func init() { testproc.Register("fileworker-server", serveUntilKilled) }

func TestMain(m *testing.M) {
	testproc.Main()
	sandbox.Main()
	if len(os.Args) == 2 && (os.Args[1] == workerVerb || os.Args[1] == muteVerb) {
		descriptors, rpc, err := sandbox.WorkerConns()
		if err != nil {
			unix.Exit(1)
		}
		for os.Args[1] == muteVerb {
			if n, err := rpc.Read(make([]byte, 1024)); n == 0 && err != nil {
				unix.Exit(0)
			}
		}
		fileworker.Serve(descriptors, rpc, 1<<20, write, func(r grpc.ServiceRegistrar) { register(r, rpc) }, nil)
		unix.Exit(0)
	}
	leakcheck.Main(m)
}

// register registers the methods of the test worker.
func register(r grpc.ServiceRegistrar, rpc net.Conn) {
	var mu sync.Mutex
	hanging := 0
	change := func(by int) int {
		mu.Lock()
		defer mu.Unlock()
		hanging += by
		return hanging
	}
	desc := &grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil)}
	for name, do := range map[string]func(ctx context.Context) (int, error){
		"pid": func(context.Context) (int, error) { return os.Getpid(), nil },
		"hang": func(ctx context.Context) (int, error) {
			change(1)
			defer change(-1)
			<-ctx.Done()
			return 0, ctx.Err()
		},
		"hanging": func(context.Context) (int, error) { return change(0), nil },
		"loud": func(context.Context) (int, error) {
			_, err := os.Stderr.Write(bytes.Repeat([]byte("much "), 1<<20))
			return 0, err
		},
		"refuse": func(ctx context.Context) (int, error) {
			refusal, err := status.New(codes.NotFound, "no "+metadata.ValueFromIncomingContext(ctx, "name")[0]).WithDetails(wrapperspb.Int64(7))
			if err != nil {
				return 0, err
			}
			return 0, refusal.Err()
		},
		"unknown": func(context.Context) (int, error) { return 0, errors.New("it failed") },
		"garbage": func(context.Context) (int, error) { return writeGarbage(rpc) },
	} {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: name,
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := decode(new(emptypb.Empty)); err != nil {
					return nil, err
				}
				n, err := do(ctx)
				return wrapperspb.Int64(int64(n)), err
			}})
	}
	r.RegisterService(desc, new(any))
}

// writeGarbage writes data that violates the protocol, and blocks.
func writeGarbage(conn net.Conn) (int, error) {
	if _, err := conn.Write(bytes.Repeat([]byte("nonsense "), 1<<10)); err != nil {
		return 0, err
	}
	select {}
}

// fixture is a pool and starts workers for it.
type fixture struct {
	*fileworker.Pool
	t       *testing.T
	ctx     context.Context
	confine *sandbox.Confinement
}

// readAll is a policy that grants read access to all files.
var readAll = sandbox.Policy{Entries: []sandbox.Entry{{Special: sandbox.SpecialRoot, Access: sandbox.AccessRead}}}

func newFixture(t *testing.T, options fileworker.Options) *fixture {
	t.Helper()
	sandboxes := sandbox.New(sandbox.Options{Without: []sandbox.Backend{sandbox.Bubblewrap}})
	t.Cleanup(sandboxes.Close)
	plan, err := readAll.Resolve(t.Context(), sandbox.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	confine, err := sandboxes.Confine(plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, errors.New("the test hangs"))
	t.Cleanup(cancel)
	options.MessageBytes = 1 << 20
	f := &fixture{Pool: fileworker.NewPool(options), t: t, ctx: ctx, confine: confine}
	t.Cleanup(f.Close)
	return f
}

// starts returns a function that starts this program with a verb.
func (f *fixture) starts(verb string) fileworker.Start {
	return func(ctx context.Context) (*sandbox.Worker, error) {
		return f.confine.StartWorker(ctx, []string{"worker", verb}, []string{testproc.NoRaceExitDelay})
	}
}

func (f *fixture) newSet() *fileworker.Set { return f.NewSet("principal", func() {}) }

// use returns a lease of a running worker.
func (f *fixture) use(set *fileworker.Set, key string) *fileworker.Lease {
	f.t.Helper()
	lease, err := set.Use(f.ctx, key, f.starts(workerVerb))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(lease.Release)
	return lease
}

func call(ctx context.Context, lease *fileworker.Lease, method string) (int, error) {
	answer := new(wrapperspb.Int64Value)
	err := lease.Conn().Invoke(ctx, "/test/"+method, new(emptypb.Empty), answer)
	return int(answer.GetValue()), err
}

func (f *fixture) answer(lease *fileworker.Lease, method string) int {
	f.t.Helper()
	n, err := call(f.ctx, lease, method)
	if err != nil {
		f.t.Fatal(method, err)
	}
	return n
}

func TestWorker_StartTimeout_IsKilled(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, StartTimeout: 100 * time.Millisecond})
	set, mute := f.newSet(), (*sandbox.Worker)(nil)
	_, err := set.Use(f.ctx, "key", func(ctx context.Context) (_ *sandbox.Worker, err error) {
		mute, err = f.starts(muteVerb)(context.WithoutCancel(ctx))
		return mute, err
	})
	if refused, is := errors.AsType[*sandbox.Error](err); !is || refused.Kind != sandbox.NotStarted {
		t.Errorf("the start fails with %v", err)
	}
	select {
	case <-mute.Done():
	default:
		t.Error("the worker still runs")
	}
	if !set.IsEmpty() {
		t.Error("the failed worker is still in the set")
	}
}

// A worker that breaks the protocol, and keeps running, is killed and replaced.
func TestWorker_ProtocolViolation_IsReplaced(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	set := f.newSet()
	lease := f.use(set, "key")
	first := f.answer(lease, "pid")
	if _, err := call(f.ctx, lease, "garbage"); status.Code(err) == codes.OK || f.ctx.Err() != nil {
		t.Errorf("the call fails with %v", err)
	}
	select {
	case <-lease.Ended():
	case <-f.ctx.Done():
		t.Fatal("the lease still works")
	}
	if again := f.answer(f.use(set, "key"), "pid"); again == first {
		t.Error("the broken worker is used again")
	}
	if err := unix.Kill(first, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the broken worker still runs: %v", err)
	}
}

func TestWorker_LargeStderr_DoesNotBlock(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	f.answer(f.use(f.newSet(), "key"), "loud")
}

func TestCall_Cancelled_EndsInWorker(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	lease := f.use(f.newSet(), "key")
	ctx, cancel := context.WithCancel(f.ctx)
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if _, err := call(ctx, lease, "hang"); status.Code(err) != codes.Canceled {
				t.Error(err)
			}
		})
	}
	for f.answer(lease, "hanging") < 50 {
	}
	cancel()
	calls.Wait()
	for f.answer(lease, "hanging") > 0 {
	}
}

// hang makes so many calls that hang, and returns when they run. end returns their errors.
func (f *fixture) hang(lease *fileworker.Lease, count int) (end func() []error) {
	f.t.Helper()
	failed := make(chan error, count)
	for range count {
		go func() {
			_, err := call(f.ctx, lease, "hang")
			failed <- err
		}()
	}
	for f.answer(lease, "hanging") < count {
	}
	return func() (errs []error) {
		for range count {
			errs = append(errs, <-failed)
		}
		return errs
	}
}

// Calls fail alike whether they have a connection to themselves or go by gRPC.
func TestCall_Fails_ReturnsStatus(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	set := f.newSet()
	lease := f.use(set, "key")
	check := func() {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(f.ctx, "name", "such file", "other", "x")
		_, err := call(ctx, lease, "refuse")
		refusal := status.Convert(err)
		if details := refusal.Details(); refusal.Code() != codes.NotFound || refusal.Message() != "no such file" || len(details) != 1 ||
			!proto.Equal(details[0].(proto.Message), wrapperspb.Int64(7)) {
			t.Errorf("%v, %v", err, details)
		}
		if _, err := call(f.ctx, lease, "unknown"); status.Code(err) != codes.Unknown || status.Convert(err).Message() != "it failed" {
			t.Error(err)
		}
		if _, err := call(f.ctx, lease, "none"); status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(f.ctx)
		cancel()
		if _, err := call(ended, lease, "pid"); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	check()
	end := f.hang(lease, 20)
	check()
	set.Close()
	for _, err := range end() {
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			t.Error(err)
		}
	}
}

func TestCall_WorkerKilled_IsUnavailable(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	lease := f.use(f.newSet(), "key")
	end := f.hang(lease, 20)
	if err := unix.Kill(f.answer(lease, "pid"), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, err := range end() {
		if status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
}

// stop stops a process, and waits until all its threads have stopped.
func (f *fixture) stop(pid int) {
	f.t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		f.t.Fatal(err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		f.t.Fatal(threads, err)
	}
	for _, thread := range threads {
		for {
			text, err := os.ReadFile(thread)
			if err != nil {
				f.t.Fatal(err)
			}
			if bytes.Contains(text, []byte(") T ")) {
				break
			}
		}
	}
}

// Calls to other workers do not wait for a stopped worker. Closing the pool kills it.
func TestWorker_Stopped_DoesNotDelayOthers(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 2, Total: 2, Idle: time.Minute})
	set := f.newSet()
	stopped, other := f.use(set, "stopped"), f.use(set, "other")
	f.receive(stopped, "its", fileworker.Unfinished, time.Minute)
	f.receive(other, "other's", fileworker.Unfinished, time.Minute)
	pid := f.answer(stopped, "pid")
	f.stop(pid)
	ctx, cancel := context.WithCancel(f.ctx)
	answered := make(chan error)
	go func() {
		_, err := call(ctx, stopped, "pid")
		answered <- err
	}()
	for range 100 {
		f.answer(other, "pid")
	}
	pinned := set.Pinned("other's")
	if len(pinned) != 1 {
		t.Fatal(pinned)
	}
	f.answer(pinned[0], "pid")
	pinned[0].Release()
	cancel()
	if err := <-answered; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	f.Close()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the stopped worker still runs: %v", err)
	}
}

// The number of processes stays below the limits when callers with different keys cancel
// their calls. Workers that are being evicted count too.
func TestPool_WorkersBeingEvicted_Count(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 2, Total: 3, Idle: time.Minute})
	var mu sync.Mutex
	var begun []*sandbox.Worker
	starting := 0
	start := func(ctx context.Context) (*sandbox.Worker, error) {
		mu.Lock()
		starting++
		begun = slices.DeleteFunc(begun, func(h *sandbox.Worker) bool {
			select {
			case <-h.Done():
				return true
			default:
				return false
			}
		})
		if n := len(begun) + starting; n > 3 {
			t.Errorf("%d workers run", n)
		}
		mu.Unlock()
		h, err := f.starts(workerVerb)(ctx)
		mu.Lock()
		defer mu.Unlock()
		starting--
		if h != nil {
			begun = append(begun, h)
		}
		return h, err
	}
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			set := f.newSet()
			for j := range 8 {
				ctx, cancel := context.WithCancel(f.ctx)
				if j%2 == 0 {
					cancel()
				}
				lease, err := set.Use(ctx, fmt.Sprint(i, j), start)
				limit := (*fileworker.LimitError)(nil)
				if err != nil && !errors.As(err, &limit) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if lease != nil {
					lease.Release()
				}
				cancel()
			}
		})
	}
	callers.Wait()
}

// serveUntilKilled BACKEND starts a worker that is confined with the other backend, makes a
// call that hangs and prints a line.
func serveUntilKilled(args []string) int {
	without := sandbox.Bubblewrap
	if args[0] == sandbox.Landlock.String() {
		without = sandbox.Landlock
	}
	ctx := context.Background()
	sandboxes := sandbox.New(sandbox.Options{Without: []sandbox.Backend{without}})
	plan, err := readAll.Resolve(ctx, sandbox.ResolveOptions{})
	if err != nil {
		return 1
	}
	confine, err := sandboxes.Confine(plan)
	if err != nil {
		return 1
	}
	pool := fileworker.NewPool(fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, MessageBytes: 1 << 20})
	lease, err := pool.NewSet("principal", func() {}).Use(ctx, "key", func(ctx context.Context) (*sandbox.Worker, error) {
		return confine.StartWorker(ctx, []string{"worker", workerVerb}, []string{testproc.NoRaceExitDelay})
	})
	if err != nil {
		return 1
	}
	go call(ctx, lease, "hang")
	for n := 0; n == 0; {
		if n, err = call(ctx, lease, "hanging"); err != nil {
			return 1
		}
	}
	fmt.Println("ready")
	select {}
}

// The workers of a killed server end. This program adopts them and so waits for their end.
func TestWorkers_ServerKilled_End(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	for _, without := range []sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock} {
		argv := testproc.Argv("fileworker-server", without.String())
		command := exec.Command(argv[0], argv[1:]...)
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Error(line, err)
		}
		if err := command.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = command.Wait()
		adopted := 0
		for {
			if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
				break
			} else if err == nil {
				adopted++
			}
		}
		if adopted == 0 {
			t.Error("the server had no worker")
		}
	}
}
