package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

func TestExitRecord_CodeOrSignal(t *testing.T) {
	for _, test := range []struct {
		spec   Spec
		code   int
		signal syscall.Signal
	}{
		{spec: shell("exit 0")},
		{spec: shell("exit 1"), code: 1},
		{spec: shell("exit 255"), code: 255},
		{spec: program("exit", "42"), code: 42},
		{spec: program("signal-self", "15"), signal: syscall.SIGTERM},
		{spec: program("signal-self", "9"), signal: syscall.SIGKILL},
		{spec: program("signal-self", "11"), signal: syscall.SIGSEGV},
		{spec: program("signal-self", "2"), signal: syscall.SIGINT},
	} {
		_, got := run(t, test.spec)
		if got.Code != test.code || got.Signal != test.signal || got.Cause != CauseExited {
			t.Errorf("%q: %+v", test.spec.Argv, got)
		}
	}
}

func TestExitRecord_Usage(t *testing.T) {
	_, got := run(t, shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
	if got.UserTime+got.SystemTime <= 0 || got.UserTime+got.SystemTime > testTimeout {
		t.Errorf("CPU time %v + %v", got.UserTime, got.SystemTime)
	}
	if got.MaxRSSBytes != 0 {
		t.Errorf("resident set of a small shell is %d, which is that of this test", got.MaxRSSBytes)
	}
	if got.WallTime <= 0 || got.ExitedAt.IsZero() || time.Since(got.ExitedAt) > testTimeout {
		t.Errorf("wall time %v, exited at %v", got.WallTime, got.ExitedAt)
	}
}

func TestExitRecord_LargeResidentSet(t *testing.T) {
	const size = 512 << 20 // more than this test, whatever ran in it before
	_, got := run(t, shell(fmt.Sprintf("exec dd if=/dev/zero of=/dev/null bs=%d count=1 status=none", size)))
	if got.MaxRSSBytes < size || got.MaxRSSBytes > 2*size {
		t.Errorf("resident set %d", got.MaxRSSBytes)
	}
}

func TestState_Sequence(t *testing.T) {
	spec := program("hold-pipes", filepath.Join(t.TempDir(), "go"))
	p := start(t, spec)
	if state := p.State(); state != StateRunning && state != StateExited {
		t.Errorf("started in state %v", state)
	}
	waitFor(t, "exited", p.Exited())
	if state := p.State(); state != StateExited {
		t.Errorf("state %v after the exit, while a child holds the pipe", state)
	}
	if record, ok := p.Exit(); !ok || record.Code != 3 {
		t.Errorf("%+v, %v", record, ok)
	}
	if err := os.WriteFile(spec.Argv[len(spec.Argv)-1], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, p)
	if state := p.State(); state != StateClosed {
		t.Errorf("state %v after closed", state)
	}
}

func TestEvents_LateOutputFollowsExitedAndPrecedesClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	p := start(t, program("hold-pipes", file))
	l := readLog(t, p)
	l.until("parent")
	waitFor(t, "exited", p.Exited())
	for !slices.Contains(l.got.kinds, "exited") {
		l.next()
	}
	if slices.Contains(l.got.kinds, "closed") {
		t.Error("closed while a child holds the pipe")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	output := l.all()
	if want := []string{"stdout", "exited", "stdout", "closed"}; !slices.Equal(output.kinds, want) {
		t.Errorf("events %v, want %v", output.kinds, want)
	}
	if !strings.HasSuffix(output.stdout, "\nlate\n") {
		t.Errorf("stdout %q", output.stdout)
	}
}

func TestEvents_ExitedFollowsReadableOutput(t *testing.T) {
	// The output fills the pipe and the process exits at once: every byte precedes the exited
	// event.
	for range 50 {
		output, _ := run(t, shell("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2"))
		if len(output.stdout) != 60000 || len(output.stderr) != 60000 {
			t.Fatalf("%d and %d bytes", len(output.stdout), len(output.stderr))
		}
		if n := len(output.kinds); output.kinds[n-2] != "exited" || output.kinds[n-1] != "closed" {
			t.Fatalf("events %v", output.kinds)
		}
	}
}

func TestEvents_FloodingDescendantDoesNotDelayExited(t *testing.T) {
	spec := piped(shell("yes & read x; exit 5"))
	spec.Output.WindowBytes = 8192 // the pipe is never empty
	p := start(t, spec)
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "a full pipe", func() bool { return readable(p.streams[0]) > 50_000 })
	mustWrite(t, p, "\n")
	waitFor(t, "exited", p.Exited())
	before := p.Log().Stats().Totals[eventlog.Stdout]
	for !p.Log().Stats().Exited {
		batch, err := owner.Next(testContext(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Acknowledge(batch.Events[len(batch.Events)-1].Seq); err != nil {
			t.Fatal(err)
		}
		if text := p.Log().Stats().Totals[eventlog.Stdout] - before; text > 1<<20 {
			t.Fatalf("%d bytes since the exit, of which a pipe holds 65,536", text)
		}
	}
	owner.Release(false)
}

// readable returns the number of bytes in the pipe of a stream.
func readable(s *stream) (n int) {
	_ = s.conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

func TestEvents_ExitedWithFullWindowAndNoOutputLeft(t *testing.T) {
	spec := piped(shell("exec 2>&-; read x; head -c 4096 /dev/zero; read y"))
	spec.Output.WindowBytes = 4096
	p := start(t, spec)
	poll(t, "the end of stderr", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.openStreams == 1
	})
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, p, "\n")
	poll(t, "the window to be used up", func() bool { return p.Log().Stats().Totals[eventlog.Stdout] == 4096 })
	mustWrite(t, p, "\n")
	poll(t, "the exited event", func() bool { return p.Log().Stats().Exited })
	owner.Release(false)
}

func TestExit_SlowOwner_IsKnownBeforeExitedEvent(t *testing.T) {
	spec := shell("head -c 60000 /dev/zero")
	spec.Output.WindowBytes = 4096
	spec.Output.RetainedBytes = 1 << 20
	s := newSupervisor(t, Config{})
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "exited", p.Exited()) // 60,000 bytes fit the pipe
	if stats := p.Log().Stats(); stats.Exited && stats.Totals[1] < 60000 {
		t.Errorf("exited event after %v bytes", stats.Totals)
	}
	total, kinds := drain(t, owner)
	if total != 60000 || kinds[len(kinds)-2] != "exited" || kinds[len(kinds)-1] != "closed" {
		t.Errorf("%d bytes, events %v", total, kinds)
	}
}

func TestPID(t *testing.T) {
	p := start(t, shell("echo $$"))
	output := readLog(t, p).all()
	if got := strings.TrimSpace(output.stdout); got != strconv.Itoa(p.PID()) {
		t.Errorf("PID %d, the child prints %s", p.PID(), got)
	}
	if p.StartedAt().IsZero() || p.Spec().Env != nil || p.Spec().Argv[0] != "/bin/sh" {
		t.Errorf("%v %+v", p.StartedAt(), p.Spec())
	}
}

// If other code has reaped the leader its PID must not be used any more.
func TestTerminate_LeaderReapedElsewhere_CauseLost(t *testing.T) {
	s := newSupervisor(t, Config{})
	p, err := s.startChild(t.Context(), shell("sleep 1000 & exit 0"), "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(p.PID(), nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	s.addProcess(p)
	s.startGoroutines(p)
	waitFor(t, "exited", p.Exited())
	tracker.mu.Lock()
	if !p.root.state.reaped || tracker.leaders[p.PID()] {
		t.Error("it counts as a zombie that reserves its PID")
	}
	tracker.mu.Unlock()
	if result := terminate(t, p, Termination{}); result.Exit.Cause != CauseLost || result.Method != MethodProcessGroup {
		t.Errorf("%+v", result)
	}
	waitClosed(t, p)
}
