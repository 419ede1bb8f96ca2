package process

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/screen"
)

// generations are supervisors of the same processes, one after another.
type generations struct {
	t         testing.TB
	config    Config
	current   *Supervisor
	processes []*Process
}

func newGenerations(t testing.TB, config Config) *generations {
	g := &generations{t: t, config: config, current: NewSupervisor(config)}
	t.Cleanup(func() {
		if err := g.current.Close(testContext(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return g
}

// start starts a process and returns its index.
func (g *generations) start(spec Spec) int {
	g.t.Helper()
	p, err := g.current.Start(testContext(g.t), spec)
	if err != nil {
		g.t.Fatal(err)
	}
	g.processes = append(g.processes, p)
	return len(g.processes) - 1
}

func (g *generations) freeze() *SupervisorState {
	g.t.Helper()
	state, err := g.current.Freeze(testContext(g.t), g.processes)
	if err != nil {
		g.t.Fatal(err)
	}
	return state
}

// replace goes on with a supervisor that was restored from the state of the current one, whose files
// are closed.
func (g *generations) replace() {
	g.t.Helper()
	state := g.freeze()
	for file := range filesOf(reflect.ValueOf(state)) {
		duplicateFile(g.t, file)
	}
	for _, p := range g.processes {
		// What the other program has would end with it.
		p.timeouts.stop()
		if p.killJob != nil {
			p.killJob.pidfds.close()
		}
	}
	config := g.config
	config.Cgroups = cgroup.Restore(state.Cgroups)
	next, processes, err := Restore(config, state)
	if err != nil {
		g.t.Fatal(err)
	}
	if g.current.adoptsOrphans {
		tracker.stopAdopting()
	}
	g.current, g.processes = next, processes[:len(g.processes)]
}

// filesOf iterates over the files in a value.
func filesOf(v reflect.Value) func(yield func(**os.File) bool) {
	return func(yield func(**os.File) bool) {
		var walk func(v reflect.Value)
		walk = func(v reflect.Value) {
			switch {
			case v.Type() == reflect.TypeFor[*os.File]():
				if file := v.Addr().Interface().(**os.File); *file != nil {
					yield(file)
				}
			case v.Kind() == reflect.Pointer && !v.IsNil():
				walk(v.Elem())
			case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
				for i := range v.Len() {
					walk(v.Index(i))
				}
			case v.Kind() == reflect.Struct:
				for i := range v.NumField() {
					if v.Type().Field(i).IsExported() {
						walk(v.Field(i))
					}
				}
			}
		}
		walk(v)
	}
}

// duplicateFile replaces a file by a duplicate, as another program has it, and closes the file.
func duplicateFile(t testing.TB, file **os.File) {
	t.Helper()
	before := *file
	conn, err := before.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		var duplicate int
		if duplicate, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			*file = os.NewFile(uintptr(duplicate), before.Name())
		}
	})
	if err != nil || before.Close() != nil {
		t.Fatal("the file was closed", err)
	}
}

// echo is a process that writes what it reads. Its input and its output are compared with a pattern.
type echo struct {
	process       int
	written, read int
}

func patternByte(i int) byte { return byte(i ^ i>>8 ^ i>>16) }

func (e *echo) write(g *generations, n int) {
	g.t.Helper()
	data := make([]byte, n)
	for i := range data {
		data[i] = patternByte(e.written + i)
	}
	if err := g.processes[e.process].WriteStdin(testContext(g.t), data); err != nil {
		g.t.Fatal(err)
	}
	e.written += n
}

// readSome reads at least n bytes as an owner that then leaves.
func (e *echo) readSome(g *generations, n int) {
	g.t.Helper()
	owner, err := g.processes[e.process].Log().OwnAcknowledged()
	if err != nil {
		g.t.Fatal(err)
	}
	defer owner.Release(true)
	for ctx := testContext(g.t); n > 0; {
		batch, err := owner.Next(ctx, 1000)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || batch.Gap != nil {
			g.t.Fatalf("after %d bytes: %v, gap %v", e.read, err, batch.Gap)
		}
		for _, event := range batch.Events {
			if event.Kind == eventlog.Output && event.Offset != uint64(e.read) {
				g.t.Fatalf("output at %d follows %d bytes", event.Offset, e.read)
			}
			for _, b := range event.Data {
				if b != patternByte(e.read) {
					g.t.Fatalf("byte %d is %d", e.read, b)
				}
				e.read++
				n--
			}
		}
		if err := owner.Acknowledge(batch.Events[len(batch.Events)-1].Seq); err != nil {
			g.t.Fatal(err)
		}
	}
}

// Freezing at any moment, and going on by Thaw or Restore, loses and repeats nothing.
func TestFreeze_Repeated_KeepsProcesses(t *testing.T) {
	leakcheck.Check(t)
	g := newGenerations(t, Config{Cgroups: withCgroups(t), AdoptOrphans: true})
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	held := eventlog.Limits{WindowBytes: 40_000, Held: true}
	cat := shell("exec cat")
	cat.PipeStdin, cat.Output = true, held
	pipes := &echo{process: g.start(cat)}
	raw := shell("stty raw -echo; exec cat")
	raw.Terminal, raw.Output = &WindowSize{Rows: 30}, held
	terminal := &echo{process: g.start(raw)}
	poll(t, "the raw terminal", func() bool { return isRaw(g.processes[terminal.process]) })
	closed := g.start(shell("echo out; exit 3"))
	waitClosed(t, g.processes[closed])
	unseen := g.start(shell("exec sleep 1000"))
	late := g.start(shell("(read x <" + fifo + "; echo $x) & exit 7"))
	waitFor(t, "the exit", g.processes[late].Exited())
	left := shell("sleep 1000 >/dev/null 2>&1 &")
	left.LeaveDescendants = true
	leaves := g.start(left)
	waitClosed(t, g.processes[leaves])
	pids := make([]int, len(g.processes))
	for i, p := range g.processes {
		pids[i] = p.PID()
	}

	random := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		for _, e := range []*echo{pipes, terminal} {
			if e.written-e.read < 80_000 {
				e.write(g, 1+random.IntN(30_000))
			}
			e.readSome(g, random.IntN(e.written-e.read))
		}
		if round == 15 {
			if err := unix.Kill(pids[unseen], unix.SIGKILL); err != nil { // the exit is noticed before or after
				t.Fatal(err)
			}
		}
		if random.IntN(3) == 0 {
			g.freeze()
			g.current.Thaw()
		} else {
			g.replace()
		}
		for i, p := range g.processes {
			if p.PID() != pids[i] {
				t.Fatalf("process %d has PID %d, had %d", i, p.PID(), pids[i])
			}
		}
	}

	ctx := testContext(t)
	if err := g.processes[pipes.process].CloseStdin(ctx); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*echo{pipes, terminal} {
		e.readSome(g, e.written-e.read)
	}
	p := g.processes[terminal.process]
	if size := p.WindowSize(); size.Rows != 30 {
		t.Errorf("the terminal has %+v", size)
	}
	if err := p.Resize(WindowSize{Rows: 40}); err != nil {
		t.Error(err)
	}
	result := terminate(t, p, Termination{})
	if !result.Verified || result.Exit.Cause != CauseTerminated || result.Exit.Signal != syscall.SIGKILL {
		t.Errorf("the kill of the terminal's process: %+v", result)
	}
	g.processes[pipes.process].Log().Free()
	if exit := waitClosed(t, g.processes[pipes.process]); exit.Code != 0 || exit.Cause != CauseExited {
		t.Errorf("cat: %+v", exit)
	}
	if exit := waitClosed(t, g.processes[unseen]); exit.Signal != syscall.SIGKILL || exit.Cause != CauseExited {
		t.Errorf("the exit during a freeze: %+v", exit)
	}
	if exit := waitClosed(t, g.processes[closed]); exit.Code != 3 {
		t.Errorf("the closed process: %+v", exit)
	}
	if got := readLog(t, g.processes[closed]).all(); got.stdout != "out\n" || !slices.Equal(got.kinds, []string{"stdout", "exited", "closed"}) {
		t.Errorf("the closed process: %+v", got)
	}
	if err := os.WriteFile(fifo, []byte("late\n"), 0); err != nil {
		t.Fatal(err)
	}
	if exit := waitClosed(t, g.processes[late]); exit.Code != 7 {
		t.Errorf("the process with a descendant: %+v", exit)
	}
	if got := readLog(t, g.processes[late]).all(); got.stdout != "late\n" || !slices.Equal(got.kinds, []string{"exited", "stdout", "closed"}) {
		t.Errorf("the process with a descendant: %+v", got)
	}
	if result := terminate(t, g.processes[leaves], Termination{}); !result.Verified || result.Method == MethodNone {
		t.Errorf("the kill of what was left running: %+v", result)
	}
}

// A termination under way goes on where it was: SIGTERM is not sent again, and a forced one completes.
func TestFreeze_DuringTermination_ContinuesIt(t *testing.T) {
	g := newGenerations(t, Config{AdoptOrphans: true})
	spec := shell("trap 'echo term' TERM; echo ready; while :; do read x || sleep 0.05; done")
	g.start(spec)
	readLog(t, g.processes[0]).until("ready")
	ctx, cancel := context.WithCancel(testContext(t))
	terminated := make(chan struct{})
	go func() {
		defer close(terminated)
		_, _ = g.processes[0].Terminate(ctx, Termination{Graceful: true, Timeout: time.Hour, Cause: CauseLimit})
	}()
	readLog(t, g.processes[0]).until("term")
	cancel()
	waitFor(t, "the call", terminated)
	g.replace()
	g.freeze()
	g.current.Thaw()
	result := terminate(t, g.processes[0], Termination{})
	if !result.Verified || result.Exit.Cause != CauseLimit {
		t.Errorf("%+v", result)
	}
	if got := readLog(t, g.processes[0]).all(); got.stdout != "ready\nterm\n" {
		t.Errorf("it wrote %q", got.stdout)
	}
}

func TestFreeze_KeepsTimeouts(t *testing.T) {
	for cause, spec := range map[Cause]Spec{
		CauseTimeout:  {Timeout: 200 * time.Millisecond},
		CauseNoOutput: {NoOutputTimeout: 200 * time.Millisecond},
	} {
		g := newGenerations(t, Config{})
		spec.Argv, spec.Cwd = []string{"/bin/sleep", "1000"}, "/"
		g.start(spec)
		g.replace()
		if exit := waitClosed(t, g.processes[0]); exit.Cause != cause {
			t.Errorf("cause %v, want %v", exit.Cause, cause)
		}
	}
}

func TestFreeze_AfterStepOfWallClock_KeepsTimeout(t *testing.T) {
	g := newGenerations(t, Config{})
	g.start(Spec{Argv: []string{"/bin/sleep", "1000"}, Cwd: "/", Timeout: time.Hour})
	g.freeze()
	p := g.processes[0]
	p.startedAt = p.startedAt.Add(-2 * time.Hour) // as Restore finds it when the clock was put on
	g.current.Thaw()
	g.replace()
	p = g.processes[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := time.Until(p.timeouts.ends); left < time.Minute {
		t.Errorf("%v of an hour are left", left)
	}
}

// Neither a freeze nor output that waits for its owner counts as silence.
func TestFreeze_NoOutputTimeout_CountsSilenceOnly(t *testing.T) {
	const timeout = 50 * time.Millisecond
	g := newGenerations(t, Config{})
	spec := shell("while :; do echo 0123456789; done")
	spec.NoOutputTimeout, spec.Output = time.Hour, eventlog.Limits{WindowBytes: 4096, Held: true}
	g.start(spec)
	g.start(shell("exec sleep 1000"))
	poll(t, "the window to be full", func() bool { return g.processes[0].OutputBlocked() })
	g.freeze()
	g.processes[0].spec.NoOutputTimeout = timeout
	g.current.Thaw()
	time.Sleep(2 * timeout) // blocked for longer than the timeout
	g.replace()
	before := g.processes[1].LastOutput()
	g.freeze()
	time.Sleep(timeout)
	g.current.Thaw()
	if shift := g.processes[1].LastOutput().Sub(before); shift < timeout {
		t.Errorf("of the freeze %v do not count as silence", shift)
	}
	poll(t, "the window to be full", func() bool { return g.processes[0].OutputBlocked() })
	if result := terminate(t, g.processes[0], Termination{}); result.Exit.Cause != CauseTerminated {
		t.Errorf("%+v", result)
	}
}

func TestFreeze_StartHangs_FailsAndGoesOn(t *testing.T) {
	g := newGenerations(t, Config{})
	spec := shell("exec cat")
	spec.PipeStdin = true
	cat := &echo{process: g.start(spec)}
	hangs, begun := make(chan struct{}), make(chan struct{})
	g.current.checkDirectory = func(string) error {
		close(begun)
		<-hangs
		return nil
	}
	started := make(chan error)
	go func() {
		_, err := g.current.Start(testContext(nil), shell("exit 0"))
		started <- err
	}()
	waitFor(t, "the start", begun)
	ctx, cancel := context.WithCancelCause(testContext(t))
	cause := errors.New("it takes too long")
	go cancel(cause)
	if _, err := g.current.Freeze(ctx, nil); !errors.Is(err, cause) {
		t.Fatalf("Freeze: %v", err)
	}
	cat.write(g, 1000)
	cat.readSome(g, 1000)
	close(hangs)
	if err := <-started; err != nil {
		t.Error(err)
	}
	g.replace()
	cat.write(g, 1000)
	cat.readSome(g, 1000)
}

// A placeholder of a confined process is in use until the process ends, in whichever program.
func TestFreeze_ConfinedPlaceholder_IsKept(t *testing.T) {
	dir := directory(t)
	placeholder := filepath.Join(dir, ".git")
	policy := writableOnly(dir)
	policy.WorkspaceRoots = []string{dir}
	policy.Entries = append(policy.Entries, sandbox.Entry{Path: placeholder, Access: sandbox.AccessRead})
	sandboxes := sandbox.New(sandbox.Options{})
	defer sandboxes.Close()
	g := newGenerations(t, Config{Sandboxes: sandboxes})
	confine := confinedBy(t, sandbox.Bubblewrap)
	for range 2 {
		g.start(confined(program("ignore-term"), confine(policy)))
	}
	for i, p := range g.processes {
		readLog(t, p).until("ready")
		if report, confined := p.Sandbox(); !confined || !report.ExitByCode {
			t.Errorf("process %d: %+v", i, report)
		}
	}
	g.replace()
	g.replace()
	for i, p := range g.processes {
		if _, err := os.Lstat(placeholder); err != nil {
			t.Errorf("there is no placeholder before the end of process %d: %v", i, err)
		}
		if err := p.Signal(syscall.SIGKILL, TargetProcess); err != nil { // the program inside of the wrapper
			t.Error(err)
		}
		if exit := waitClosed(t, p); exit.Code != 128+int(syscall.SIGKILL) || exit.Cause != CauseExited {
			t.Errorf("%+v", exit)
		}
	}
	poll(t, "the placeholder to be removed", func() bool { _, err := os.Lstat(placeholder); return errors.Is(err, os.ErrNotExist) })
}

// Whatever tree of processes there is, another program kills all of it, and verifies that.
func TestFreeze_HostileTrees_AreKilled(t *testing.T) {
	for _, setup := range []killSetup{{adopt: true}, {adopt: true, cgroup: true}} {
		t.Run(setup.String(), func(t *testing.T) {
			t.Cleanup(func() { wantNoChildren(t) })
			config := Config{AdoptOrphans: true}
			if setup.cgroup {
				config.Cgroups = withCgroups(t)
			}
			g := newGenerations(t, config)
			tree := newHostileTree(t, "session", "daemon", "stopped", "child")
			g.processes = append(g.processes, tree.startReady(g.current))
			g.replace()
			tree.waitForTick()                                        // or its daemon may descend from the next process
			leaves := newHostileTree(t, "-leave", "daemon", "daemon") // ends at about this time
			g.processes = append(g.processes, leaves.start(g.current))
			g.replace()
			g.replace()
			result := terminate(t, g.processes[0], Termination{})
			tree.wantAllDead("after the termination")
			if !result.WasRunning || result.Exit.Cause != CauseTerminated { // whether it is verified depends on the end of the leaves
				t.Errorf("%+v", result)
			}
			wantEnd(t, g.processes[1])
			g.replace()
			poll(t, "the end of all", func() bool { return len(leaves.alive()) == 0 })
			for _, p := range g.processes[:2] {
				poll(t, "proof of that", func() bool { // while others fork, a scan may be no proof
					result := terminate(t, p, Termination{})
					if result.WasRunning {
						t.Errorf("%+v", result)
					}
					return result.Verified
				})
			}
		})
	}
}

// isRaw reports whether the terminal of a process does not echo.
func isRaw(p *Process) (raw bool) {
	_ = p.terminal.control(func(fd int) error {
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		raw = err == nil && settings.Lflag&unix.ECHO == 0
		return err
	})
	return raw
}

// Of the terminal of a process of an earlier server its size is known, and no screen, also after an upgrade.
func TestRecover_Terminal_HasSizeAndNoScreen(t *testing.T) {
	g := newGenerations(t, Config{})
	size, output := WindowSize{Rows: 5, Cols: 7}, []byte("the end")
	p, err := g.current.Recover(Spec{Argv: []string{"/bin/true"}, Terminal: &size}, 1, time.Now(), ExitRecord{Cause: CauseExited}, &eventlog.State{
		Events: []eventlog.Event{{Seq: 1, Kind: eventlog.Output, Stream: eventlog.Terminal, Offset: 0, Data: output},
			{Seq: 2, Kind: eventlog.Exited}, {Seq: 3, Kind: eventlog.Closed}},
		Streams: []eventlog.StreamState{{Stream: eventlog.Terminal, Total: uint64(len(output))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.processes = []*Process{p}
	for range 3 {
		p := g.processes[0]
		wantKind(t, p.Screen(func(*screen.Screen, uint64) {}), ScreenUnavailable)
		if p.WindowSize() != size {
			t.Errorf("its size is %v", p.WindowSize())
		}
		g.replace()
	}
}
