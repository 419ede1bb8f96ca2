package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
)

func TestMain(m *testing.M) {
	testproc.Main()
	sandbox.Main()
	judgeInForeignProc()
	leakcheck.Main(m)
}

// patience guards against hanging; no test waits for it to pass.
const patience = 2 * time.Minute

// testContext ends when a test hangs; of a program under test it has no test.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("test took too long"))
	if t != nil {
		t.Cleanup(cancel)
	} else {
		context.AfterFunc(ctx, cancel)
	}
	return ctx
}

// newSupervisor returns a supervisor that is closed at the end of the test.
func newSupervisor(t testing.TB, config Config) *Supervisor {
	t.Helper()
	s := NewSupervisor(config)
	t.Cleanup(func() {
		if err := s.Close(testContext(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// program is the Spec of a program of testproc, with an environment that it needs.
func program(name string, args ...string) Spec {
	return Spec{Argv: testproc.Argv(name, args...), Cwd: "/", Env: os.Environ()}
}

// shell is the Spec of a command for /bin/sh.
func shell(script string) Spec {
	return Spec{Argv: []string{"/bin/sh", "-c", script}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}}
}

// start starts a process on a supervisor of its own.
func start(t testing.TB, spec Spec) *Process {
	t.Helper()
	p, err := newSupervisor(t, Config{}).Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wait waits for a channel of a process.
func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("hung waiting for %s", what)
	}
}

// exit waits for the process to be closed and returns its exit record.
func exit(t testing.TB, p *Process) ExitRecord {
	t.Helper()
	wait(t, "closed", p.Closed())
	record, ok := p.Exit()
	if !ok {
		t.Fatal("closed without an exit record")
	}
	return record
}

// transcript reads a log from its beginning to its end.
type transcript struct {
	stdout, stderr, terminal string
	kinds                    []string // runs of the same kind or stream as one
}

// listener reads a process's log as an observer.
type listener struct {
	t      testing.TB
	reader *eventlog.Reader
	heard  transcript
	ended  bool
}

func listen(t testing.TB, p *Process) *listener {
	t.Helper()
	reader, err := p.Log().NewReader(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return &listener{t: t, reader: reader}
}

// next waits for something.
func (l *listener) next() {
	l.t.Helper()
	batch, err := l.reader.Next(testContext(l.t), 0)
	switch {
	case errors.Is(err, io.EOF):
		l.ended = true
		return
	case err != nil:
		l.t.Fatalf("%v; heard so far: %+v", err, l.heard)
	case batch.Gap != nil:
		l.t.Fatalf("gap: %+v", *batch.Gap)
	}
	for _, event := range batch.Events {
		l.heard.add(event)
	}
}

func (h *transcript) add(event eventlog.Event) {
	kind := event.Kind.String()
	if event.Kind == eventlog.Output {
		kind = event.Stream.String()
	}
	if len(h.kinds) == 0 || h.kinds[len(h.kinds)-1] != kind {
		h.kinds = append(h.kinds, kind)
	}
	switch event.Stream {
	case eventlog.Stdout:
		h.stdout += string(event.Data)
	case eventlog.Stderr:
		h.stderr += string(event.Data)
	case eventlog.Terminal:
		h.terminal += string(event.Data)
	}
}

// until listens until the output, all streams together, contains text.
func (l *listener) until(text string) transcript {
	l.t.Helper()
	for !strings.Contains(l.heard.stdout+l.heard.stderr+l.heard.terminal, text) {
		if l.ended {
			l.t.Fatalf("ended before %q: %+v", text, l.heard)
		}
		l.next()
	}
	return l.heard
}

// all listens until the log is closed.
func (l *listener) all() transcript {
	l.t.Helper()
	for !l.ended {
		l.next()
	}
	return l.heard
}

// run starts a process and listens to all of it.
func run(t testing.TB, spec Spec) (transcript, ExitRecord) {
	t.Helper()
	p := start(t, spec)
	heard := listen(t, p).all()
	return heard, exit(t, p)
}

func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return v
}

// wantKind checks the kind of an error.
func wantKind(t testing.TB, err error, want Kind) {
	t.Helper()
	if KindOf(err) != want {
		t.Errorf("error %v has kind %v, want %v", err, KindOf(err), want)
	}
}

// poll waits until condition holds.
func poll(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("hung waiting for %s", what)
		}
	}
}
