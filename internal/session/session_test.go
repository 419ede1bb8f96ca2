package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

func TestMain(m *testing.M) {
	testproc.Main()
	leakcheck.Main(m)
}

// testTimeout is how long a test waits for an expected event.
const testTimeout = 2 * time.Minute

type fixture struct {
	*session.Session
	registry *session.Registry
	ctx      context.Context
}

func newFixture(t *testing.T, cfg session.Config) *fixture {
	t.Helper()
	return newFixtureOf(t, process.NewSupervisor(process.Config{}), cfg)
}

func newFixtureOf(t *testing.T, supervisor *process.Supervisor, cfg session.Config) *fixture {
	t.Helper()
	if cfg.MaxGrace == 0 {
		cfg.MaxGrace = time.Hour
	}
	registry := session.NewRegistry(supervisor, cfg)
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	t.Cleanup(func() {
		if err := registry.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
		cancel()
	})
	s, err := registry.Open("tester", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Session: s, registry: registry, ctx: ctx}
}

func spec(argv ...string) process.Spec {
	return process.Spec{Argv: argv, Cwd: "/", Env: []string{testproc.NoRaceExitDelay}, PipeStdin: true}
}

func (f *fixture) start(t *testing.T, id string, argv ...string) *session.Process {
	t.Helper()
	p, created, err := f.Start(f.ctx, id, session.Digest{1}, spec(argv...), session.StartOptions{})
	if err != nil || !created {
		t.Fatalf("Start = %v, %v", created, err)
	}
	return p
}

func wantKind(t testing.TB, err error, kind session.Kind) {
	t.Helper()
	var typed *session.Error
	if !errors.As(err, &typed) || typed.Kind != kind {
		t.Fatalf("error is %v, want kind %v", err, kind)
	}
}

func TestStart_ConcurrentEqual_CreateOneProcess(t *testing.T) {
	f := newFixture(t, session.Config{})
	var created atomic.Int32
	var group sync.WaitGroup
	pids := make([]int, 20)
	for i := range pids {
		group.Go(func() {
			p, made, err := f.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			if made {
				created.Add(1)
			}
			pids[i] = p.PID()
		})
	}
	group.Wait()
	if created.Load() != 1 {
		t.Errorf("%d of the starts created a process", created.Load())
	}
	for _, pid := range pids {
		if pid != pids[0] {
			t.Fatalf("the starts found processes %v", pids)
		}
	}
}

func TestStart_ConcurrentDifferent_OneSucceeds(t *testing.T) {
	f := newFixture(t, session.Config{})
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			_, _, err := f.Start(f.ctx, "p", session.Digest{byte(i)}, spec("/bin/cat"), session.StartOptions{})
			if err == nil {
				won.Add(1)
				return
			}
			var typed *session.Error
			if !errors.As(err, &typed) || typed.Kind != session.ProcessAlreadyExists {
				t.Errorf("a loser fails with %v", err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d starts won", won.Load())
	}
}

// Of two concurrent starts with one id the first cannot succeed: the second is not rejected
// because of it.
func TestStart_ConcurrentFailure_DoesNotUseID(t *testing.T) {
	f := newFixture(t, session.Config{})
	garbage := filepath.Join(t.TempDir(), "garbage") // found, but the kernel rejects it
	if err := os.WriteFile(garbage, []byte("\x01\x02 no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		id := fmt.Sprint(i)
		var both sync.WaitGroup
		both.Go(func() {
			if _, _, err := f.Start(f.ctx, id, session.Digest{1}, spec(garbage), session.StartOptions{}); err == nil {
				t.Error("a file that is no program was started")
			}
		})
		both.Go(func() {
			if _, _, err := f.Start(f.ctx, id, session.Digest{2}, spec("/bin/true"), session.StartOptions{}); err != nil {
				t.Errorf("the other start failed: %v", err)
			}
		})
		both.Wait()
	}
}

func TestStart_Fails_FreesID(t *testing.T) {
	f := newFixture(t, session.Config{})
	_, _, err := f.Start(f.ctx, "p", session.Digest{1}, spec("/no/such/program"), session.StartOptions{})
	if process.KindOf(err) != process.ProgramNotFound {
		t.Fatalf("Start = %v", err)
	}
	_, err = f.Process("p")
	wantKind(t, err, session.ProcessNotFound)
	f.start(t, "p", "/bin/true")
}

func TestGrace_Expires_TerminatesUnownedProcess(t *testing.T) {
	f := newFixture(t, session.Config{})
	abandoned, kept := f.start(t, "abandoned", "/bin/cat"), f.start(t, "kept", "/bin/cat")
	grace, long := 2*time.Second, time.Hour                 // the owner of kept must resume within grace
	for _, p := range []*session.Process{kept, abandoned} { // kept would be terminated first
		o, err := p.Own(f.ctx, 0, &grace)
		if err != nil {
			t.Fatal(err)
		}
		o.Lost()
		if p == kept {
			if _, err := p.Own(f.ctx, 0, &long); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-abandoned.Exited()
	if record, _ := abandoned.Exit(); record.Cause != process.CauseTerminated {
		t.Errorf("exit is %+v", record)
	}
	if _, exited := kept.Exit(); exited {
		t.Error("a process was terminated although its owner resumed")
	}
	if !kept.Owned() || abandoned.Owned() {
		t.Errorf("owned: kept %v, abandoned %v", kept.Owned(), abandoned.Owned())
	}
}

func TestGrace_ExpiryRacesWithResume(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Minute})
	for i := range 200 {
		p := f.start(t, fmt.Sprint(i), "/bin/cat")
		grace := 500 * time.Microsecond
		o, err := p.Own(f.ctx, 0, &grace)
		if err != nil {
			t.Fatal(err)
		}
		o.Lost()
		if i%2 == 0 {
			time.Sleep(grace)
		}
		again, err := p.Own(f.ctx, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Whichever comes first, the new owner can close stdin or receives the end. It never
		// waits without end.
		_ = p.CloseStdin(f.ctx)
		for err = nil; err == nil; {
			_, err = again.Next(f.ctx, 0)
		}
		if f.ctx.Err() != nil {
			t.Fatalf("round %d hangs", i)
		}
		again.Detach()
	}
}

func TestReplacedOwner_ChangesNothing(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	first, err := p.Own(f.ctx, 0, new(time.Duration))
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Own(f.ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Next(f.ctx, 0); !errors.Is(err, eventlog.ErrReplaced) {
		t.Errorf("the replaced owner reads %v", err)
	}
	first.Lost() // with a grace of 0 this would terminate at once
	first.Detach()
	if _, exited := p.Exit(); exited || !p.Owned() {
		t.Error("the end of the replaced owner had an effect")
	}
	_ = second
}

func TestOwn_ManyTakeovers_LeakNoReaders(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	var before *session.Ownership
	for i := range 3 * p.Log().Limits().MaxReaders {
		o, err := p.Own(f.ctx, 0, nil)
		if err != nil {
			t.Fatalf("take-over %d: %v", i, err)
		}
		if before != nil {
			before.Lost()
		}
		before = o
	}
	if readers := p.Log().Stats().Readers; readers != 1 {
		t.Errorf("%d readers remain", readers)
	}
}

func TestGrace_AboveMaximum_Fails(t *testing.T) {
	f := newFixture(t, session.Config{MaxGrace: time.Minute})
	p := f.start(t, "p", "/bin/cat")
	tooLong := time.Hour
	_, err := p.Own(f.ctx, 0, &tooLong)
	wantKind(t, err, session.GraceTooLong)
	if p.Owned() {
		t.Error("a rejected owner owns the process")
	}
}

func TestDrain_RejectsStartsAndWaits(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	f.registry.Drain()
	_, _, err := f.Start(f.ctx, "q", session.Digest{2}, spec("/bin/true"), session.StartOptions{})
	wantKind(t, err, session.Draining)
	if n := f.registry.Totals().Running; n != 1 {
		t.Errorf("%d processes run", n)
	}
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.registry.WaitIdle(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.registry.Drain() // a second call has no effect
}

// A retried start locks the session and then the registry, also while the registry closes.
// Close must not lock them in the other order.
func TestClose_ConcurrentRetriedStarts_NoDeadlock(t *testing.T) {
	for range 300 {
		registry := session.NewRegistry(process.NewSupervisor(process.Config{}), session.Config{})
		s, err := registry.Open("tester", "", session.AccessOwner)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeoutCause(t.Context(), testTimeout, errors.New("the test hangs"))
		var starters sync.WaitGroup
		for i := range 4 {
			starters.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, _, _ = s.Start(ctx, fmt.Sprint(i, n), session.Digest{}, spec("/nonexistent"), session.StartOptions{})
				}
			})
		}
		err = registry.Close(ctx)
		stop()
		starters.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrain_WaitsForOwnerInGracePeriod(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat") // it does not end before it has an owner
	hour := time.Hour
	o, err := p.Own(f.ctx, 0, &hour)
	if err != nil {
		t.Fatal(err)
	}
	o.Lost()
	if _, err := p.Terminate(f.ctx, process.Termination{}); err != nil {
		t.Fatal(err)
	}
	<-p.Closed()
	f.registry.Drain()
	soon, cancel := context.WithTimeoutCause(f.ctx, 50*time.Millisecond, errors.New("not idle"))
	defer cancel()
	if f.registry.WaitIdle(soon) == nil {
		t.Fatal("the drain ended while an owner may still resume to read the end of a process")
	}
	again, err := p.Own(f.ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Detach()
	if err := f.registry.WaitIdle(f.ctx); err != nil {
		t.Fatal(err)
	}
}

func TestOwn_EndedContext_DisplacesNothing(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	o, err := p.Own(f.ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(f.ctx)
	cancel(errors.New("gone"))
	if _, err := p.Own(gone, 0, nil); err == nil || err.Error() != "gone" {
		t.Errorf("a cancelled caller owns the process: %v", err)
	}
	if err := o.Acknowledge(0); err != nil || !p.Owned() {
		t.Errorf("the owner was displaced: %v", err)
	}
}

func TestWriteStdin_WaitingInput_IsBounded(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", testproc.Argv("never-read")...)
	piece := make([]byte, 1<<20)
	ctx, stop := context.WithCancelCause(f.ctx)
	results := make(chan error, 20)
	for range cap(results) {
		go func() { results <- p.WriteStdinOnce(ctx, "", piece) }()
	}
	refused := 0
	for accepted := 0; refused < cap(results)-session.MaxWaitingInput>>20-accepted; {
		err := <-results
		var typed *session.Error
		switch {
		case err == nil:
			accepted++
		case errors.As(err, &typed) && typed.Kind == session.StdinQueueFull:
			refused++
		default:
			t.Fatal(err)
		}
	}
	stop(errors.New("the test is over"))
	if refused == 0 {
		t.Error("no write was rejected")
	}
	for range session.MaxWaitingInput >> 20 {
		<-results
	}
}

// A former owner writes nothing after the offset that the next owner continues from, which would
// skip as much of its own input.
func TestWriteStdin_FormerOwner_AcceptsNothing(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/sh", "-c", "exec cat >/dev/null")
	input := make([]byte, 4<<10)
	for range 50 {
		o, err := p.Own(f.ctx, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		begin := p.StdinOffset()
		written := make(chan error, 1)
		go func() {
			for offset := begin; ; {
				var err error
				if offset, err = o.WriteStdin(f.ctx, offset, input, false); err != nil {
					written <- err
					return
				}
			}
		}()
		for p.StdinOffset() == begin {
			runtime.Gosched()
		}
		if _, err := p.Own(f.ctx, 0, nil); err != nil {
			t.Fatal(err)
		}
		next := p.StdinOffset()
		if err := <-written; !errors.Is(err, eventlog.ErrReplaced) {
			t.Fatalf("the former owner's write fails with %v", err)
		}
		if after := p.StdinOffset(); after != next {
			t.Fatalf("%d bytes of the former owner were accepted", after-next)
		}
	}
}

// The context of a stream retains its connection.
func TestLost_FreesContext(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	type key struct{}
	connection := new([1 << 10]byte)
	o, err := p.Own(context.WithValue(f.ctx, key{}, connection), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, left := o.ID(), weak.Make(connection)
	o.Lost()
	if cause := context.Cause(o.Context()); !errors.Is(cause, eventlog.ErrReplaced) {
		t.Errorf("the context ended because of %v", cause)
	}
	connection, o = nil, nil
	until(t, f, "the connection is freed", func() bool {
		runtime.GC()
		return left.Value() == nil
	})
	if former, err := p.Ownership(id); err != nil {
		t.Error(err)
	} else {
		wantKind(t, former.Acknowledge(0), session.OwnerLost)
	}
}

func TestWriteStdin_RepeatedOffsets_AreSkipped(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	o, err := p.Own(f.ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []struct {
		offset uint64
		data   string
		end    bool
		want   uint64
	}{{0, "hello ", false, 6}, {0, "hello ", false, 6}, {3, "lo wor", false, 9}, {9, "ld", true, 11}, {9, "ld", true, 11}} {
		accepted, err := o.WriteStdin(f.ctx, in.offset, []byte(in.data), in.end)
		if err != nil || accepted != in.want {
			t.Fatalf("%+v: accepted %d, %v", in, accepted, err)
		}
	}
	_, err = o.WriteStdin(f.ctx, 12, []byte("hole"), false)
	wantKind(t, err, session.StdinOffsetInvalid)
	var output []byte
	for {
		batch, err := o.Next(f.ctx, 0)
		if err != nil {
			break
		}
		for _, e := range batch.Events {
			output = append(output, e.Data...)
		}
	}
	if string(output) != "hello world" {
		t.Errorf("cat read %q", output)
	}
}

func TestWriteStdin_WriteIDs_OldestAreForgotten(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", testproc.Argv("echo")...)
	write := func(id string) {
		if err := p.WriteStdinOnce(f.ctx, id, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range session.MaxWriteIDs + 1 {
		write(fmt.Sprint(i))
	}
	write("1") // known: not applied
	write("0") // forgotten: applied again
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	<-p.Closed()
	if got, want := p.Log().Stats().Totals[eventlog.Stdout], uint64(session.MaxWriteIDs+2); got != want {
		t.Errorf("%d bytes were written, want %d", got, want)
	}
}

// Prepare comes before each process that is spawned, and before no other.
func TestStart_Prepare_IsForSpawnedProcesses(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	prepared, failed := 0, 0
	var began *process.Process
	options := session.StartOptions{Prepare: func() (func(*process.Process), error) {
		prepared++
		return func(p *process.Process) {
			if _, err := f.Process("p"); err == nil {
				t.Error("the process can be found before it has begun")
			}
			if began = p; p == nil {
				failed++
			}
		}, nil
	}}
	if _, _, err := f.Start(f.ctx, "p", session.Digest{1}, spec("/no/such/program"), options); err == nil || failed != 1 {
		t.Errorf("a program that does not exist: %v, %d failures were reported", err, failed)
	}
	p, created, err := f.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), options)
	if err != nil || !created || began != p.Process {
		t.Fatalf("got %v, %v, %v", p, created, err)
	}
	if _, created, err := f.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), options); err != nil || created || prepared != 2 {
		t.Errorf("a retry: %v, %v, prepared %d times", created, err, prepared)
	}
	refused := errors.New("refused")
	options.Prepare = func() (func(*process.Process), error) { return nil, refused }
	if _, _, err := f.Start(f.ctx, "q", session.Digest{1}, spec("/bin/cat"), options); !errors.Is(err, refused) {
		t.Errorf("a start that cannot be prepared: %v", err)
	}
	old := f.startAndWaitClosed(t, "q")
	options.Replace = true
	if _, _, err := f.Start(f.ctx, "q", session.Digest{2}, spec("/bin/cat"), options); !errors.Is(err, refused) || must(t)(f.Process("q")) != old {
		t.Errorf("a replacement that cannot be prepared: %v", err)
	}
}

// A process has begun also if the stream that is to own it has ended meanwhile.
func TestStartOwned_Prepare_StreamIsGone(t *testing.T) {
	f := newFixture(t, session.Config{DefaultGrace: time.Hour})
	ctx, cancel := context.WithCancel(f.ctx)
	var began *process.Process
	options := session.StartOptions{Prepare: func() (func(*process.Process), error) {
		return func(p *process.Process) { began = p; cancel() }, nil
	}}
	_, _, err := f.StartOwned(ctx, "p", session.Digest{1}, spec("/bin/cat"), options, nil)
	if p := must(t)(f.Process("p")); !errors.Is(err, context.Canceled) || began != p.Process {
		t.Errorf("%v; %v has begun", err, began)
	}
}
