package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// patternWait is a wait in progress.
type patternWait struct {
	match PatternMatch
	found bool
	err   error
	over  chan struct{}
}

func beginWait(ctx context.Context, p *Process, pattern *Pattern, wait time.Duration) *patternWait {
	w := &patternWait{over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.match, w.found, w.err = p.WaitPattern(ctx, pattern, 0, 0, wait)
	}()
	return w
}

func TestWaitPattern_PastAndFutureOutput(t *testing.T) {
	p := start(t, piped(program("echo")))
	mustWrite(t, p, "was \xff\x00 here\n")
	here := newPattern(t, `here$|(?m)comes$`)
	w := beginWait(testContext(t), p, newPattern(t, `\x00 here`), testTimeout)
	waitFor(t, "past output", w.over)
	if w.err != nil || !w.found || string(w.match.Data) != "\x00 here" || w.match.Offset != 5 || w.match.Stream != eventlog.Stdout {
		t.Fatalf("got %+v", w)
	}
	w = beginWait(testContext(t), p, newPattern(t, `(?m)^then$`), testTimeout)
	poll(t, "the reader", func() bool { return p.Log().Stats().Readers == 1 })
	mustWrite(t, p, "the")
	mustWrite(t, p, "n\n")
	waitFor(t, "future output", w.over)
	if w.err != nil || !w.found || w.match.Offset != 12 || w.match.Seq != p.Log().Stats().LastSeq {
		t.Errorf("got %+v", w)
	}
	if readers := p.Log().Stats().Readers; readers != 0 {
		t.Errorf("%d readers are left", readers)
	}
	// A wait of 0 searches all retained output, after its cursor.
	if _, found, err := p.WaitPattern(testContext(t), here, 0, 0, 0); err != nil || found {
		t.Errorf("a wait of 0 found what is not there: %v", err)
	}
	seen := newPattern(t, `was|then`)
	if m, found, err := p.WaitPattern(testContext(t), seen, 0, 0, 0); err != nil || !found || m.Offset != 0 {
		t.Errorf("a wait of 0 did not find what is there: %+v, %v", m, err)
	}
	if m, found, err := p.WaitPattern(testContext(t), newPattern(t, `^t|was`), 0, 1, 0); err != nil || !found || m.Offset != 12 {
		t.Errorf("a wait of 0 after the first event found %+v, %v", m, err)
	}
	if _, found, _ := p.WaitPattern(testContext(t), seen, eventlog.Stderr, 0, 0); found {
		t.Error("found on stderr what was written to stdout")
	}
	if _, _, err := p.WaitPattern(testContext(t), seen, 0, 1000, 0); !errors.Is(err, eventlog.ErrFutureSeq) {
		t.Errorf("a cursor that was not reached: %v", err)
	}
}

func TestWaitPattern_ProcessCloses(t *testing.T) {
	p := start(t, piped(shell("echo hello; read x; echo good bye >&2")))
	w := beginWait(testContext(t), p, newPattern(t, `nobody`), testTimeout)
	poll(t, "the reader", func() bool { return p.Log().Stats().Readers == 1 })
	mustWrite(t, p, "\n")
	waitFor(t, "the end", w.over)
	if w.err != nil || w.found {
		t.Errorf("got %+v", w)
	}
	waitClosed(t, p)
	if m, found, err := p.WaitPattern(testContext(t), newPattern(t, `bye$|\z`), eventlog.Stderr, 0, testTimeout); err != nil || !found || m.Stream != eventlog.Stderr {
		t.Errorf("of a closed process: %+v, %v", m, err)
	}
	noOutput := start(t, shell("exit 0"))
	if _, found, err := noOutput.WaitPattern(testContext(t), newPattern(t, ``), 0, 0, testTimeout); err != nil || found {
		t.Errorf("the empty expression matched without output: %v", err)
	}
}

func TestWaits_ContextEnds(t *testing.T) {
	p := start(t, program("sleep"))
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(testContext(t))
	w := beginWait(ctx, p, newPattern(t, `x`), testTimeout)
	poll(t, "the reader", func() bool { return p.Log().Stats().Readers == 1 })
	cancel(gone)
	waitFor(t, "the end of the wait", w.over)
	if !errors.Is(w.err, gone) {
		t.Errorf("got %+v", w)
	}
	if _, found, err := p.WaitPattern(testContext(t), newPattern(t, `x`), 0, 0, time.Millisecond); err != nil || found {
		t.Errorf("a short wait: %v, %v", found, err)
	}
	if _, err := p.WaitPort(ctx, 1, testTimeout); !errors.Is(err, gone) {
		t.Errorf("waiting for a port: %v", err)
	}
	if _, err := p.WaitIdle(ctx, time.Hour, testTimeout); !errors.Is(err, gone) {
		t.Errorf("waiting for silence: %v", err)
	}
}

func TestWaitPattern_CountsAsReader(t *testing.T) {
	spec := program("sleep")
	spec.Output = eventlog.Limits{MaxReaders: 1}
	p := start(t, spec)
	ctx, cancel := context.WithCancelCause(testContext(t))
	w := beginWait(ctx, p, newPattern(t, `x`), testTimeout)
	poll(t, "the reader", func() bool { return p.Log().Stats().Readers == 1 })
	if _, _, err := p.WaitPattern(testContext(t), newPattern(t, `x`), 0, 0, 0); !errors.Is(err, eventlog.ErrTooManyReaders) {
		t.Errorf("got %v", err)
	}
	cancel(errors.New("enough"))
	waitFor(t, "the end of the wait", w.over)
}

// A slow expression neither blocks the process nor misses its last output.
func TestWaitPattern_SlowExpression_DoesNotBlockProcess(t *testing.T) {
	testrace.Slow(t)
	const bytes = 32 << 20
	spec := shell(fmt.Sprintf("%s -bytes %d; echo needle in a haystack", strings.Join(testproc.Argv("flood"), " "), bytes))
	spec.Env = os.Environ()
	p := start(t, spec)
	w := beginWait(testContext(t), p, newPattern(t, `([a-z]*[0-9]*){3}needle in a haystack`), testTimeout)
	waitClosed(t, p)
	waitFor(t, "the end of the wait", w.over)
	if w.err != nil || !w.found || w.match.Offset+uint64(len(w.match.Data)) != bytes+uint64(len("needle in a haystack")) {
		t.Errorf("found %d bytes at %d, %v, %v", len(w.match.Data), w.match.Offset, w.found, w.err)
	}
}

func TestWaitPort_ListenersOfProcessTree(t *testing.T) {
	for _, tt := range []struct {
		name, program, address string
	}{
		{"the process", "listen", "127.0.0.1:%d"},
		{"any address", "listen", ":%d"},
		{"version 6", "listen", "[::1]:%d"},
		{"a descendant", "listen-child", "0.0.0.0:%d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := testport.Reserve(t)
			p := start(t, piped(program(tt.program, fmt.Sprintf(tt.address, port))))
			if found, err := p.WaitPort(testContext(t), port, testTimeout); err != nil || !found {
				t.Fatalf("got %v, %v", found, err)
			}
			if found, err := p.WaitPort(testContext(t), port, 0); err != nil || !found {
				t.Errorf("a wait of 0: %v, %v", found, err)
			}
			if found, _ := p.WaitPort(testContext(t), testport.Reserve(t), 0); found {
				t.Error("it listens on another port")
			}
			if err := p.CloseStdin(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if found, err := p.WaitPort(testContext(t), testport.Reserve(t), testTimeout); err != nil || found {
				t.Errorf("the process closed first: %v, %v", found, err)
			}
		})
	}
}

func TestWaitPort_IgnoresOtherListeners(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	other := start(t, piped(program("listen", "127.0.0.1:0")))
	readLog(t, other).until("listening")
	p := start(t, program("sleep"))
	if found, err := p.WaitPort(testContext(t), port, 2*minPortPoll); err != nil || found {
		t.Errorf("a port of another process: %v, %v", found, err)
	}
	// A connection from a port is not a listener on it.
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialled.Close() }()
	if listens([]int{os.Getpid()}, uint16(dialled.LocalAddr().(*net.TCPAddr).Port)) {
		t.Error("a connection counts as a listener")
	}
	if !listens([]int{os.Getpid()}, port) {
		t.Error("the own listener was not found")
	}
}

// Each process is checked in its own network namespace.
func TestWaitPort_NetworkNamespaces(t *testing.T) {
	if err := exec.Command("unshare", "-n", "true").Run(); err != nil {
		t.Fatal("run the tests as root, who can make network namespaces: ", err)
	}
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	spec := piped(shell("unshare -n " + strings.Join(testproc.Argv("listen", fmt.Sprintf(":%d", port)), " ") + "; exit"))
	spec.Env = os.Environ()
	p := start(t, spec)
	if found, err := p.WaitPort(testContext(t), port, testTimeout); err != nil || !found {
		t.Errorf("a child in a namespace: %v, %v", found, err)
	}
}

func TestWaitIdle(t *testing.T) {
	p := start(t, piped(shell("while read x; do echo $x; done")))
	const silence = 100 * time.Millisecond
	idle, err := p.WaitIdle(testContext(t), silence, testTimeout)
	if since := time.Since(p.StartedAt()); err != nil || !idle || since < silence {
		t.Errorf("idle after %v: %v, %v", since, idle, err)
	}
	output := readLog(t, p)
	mustWrite(t, p, "word\n")
	output.until("word")
	idle, err = p.WaitIdle(testContext(t), silence, testTimeout)
	if since := time.Since(p.LastOutput()); err != nil || !idle || since < silence {
		t.Errorf("idle %v after the last output: %v, %v", since, idle, err)
	}
	if idle, err := p.WaitIdle(testContext(t), time.Hour, time.Millisecond); err != nil || idle {
		t.Errorf("an hour is over already: %v, %v", idle, err)
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, p)
	if idle, err := p.WaitIdle(testContext(t), silence, testTimeout); err != nil || !idle {
		t.Errorf("a closed process is not silent: %v, %v", idle, err)
	}
}

func TestWaitIdle_ContinuousOutput(t *testing.T) {
	p := start(t, shell("while :; do echo x; done"))
	if idle, err := p.WaitIdle(testContext(t), time.Hour, 50*time.Millisecond); err != nil || idle {
		t.Errorf("got %v, %v", idle, err)
	}
}

// A process that cannot write because its output is not read is not idle.
func TestWaitIdle_BlockedOutput(t *testing.T) {
	p, owner := startOwned(t, shell("read x; head -c 500000 /dev/zero; exec sleep 1000"))
	poll(t, "output to be blocked", p.OutputBlocked)
	if idle, err := p.WaitIdle(testContext(t), time.Nanosecond, 2*blockedOutputPoll); err != nil || idle {
		t.Errorf("got %v, %v", idle, err)
	}
	owner.Release(false)
	if idle, err := p.WaitIdle(testContext(t), time.Millisecond, testTimeout); err != nil || !idle {
		t.Errorf("once it can write: %v, %v", idle, err)
	}
}

// A process that has exited is silent, although its owner has not read all of its output.
func TestWaitIdle_ExitedWithBlockedOutput(t *testing.T) {
	p, _ := startOwned(t, shell("read x; head -c 100000 /dev/zero"))
	poll(t, "output to be blocked", p.OutputBlocked)
	waitFor(t, "its exit", p.Exited())
	if !p.OutputBlocked() {
		t.Fatal("its output is not blocked")
	}
	if idle, err := p.WaitIdle(testContext(t), time.Millisecond, testTimeout); err != nil || !idle {
		t.Errorf("got %v, %v", idle, err)
	}
}
