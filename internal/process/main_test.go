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
	checkPeerInForeignProc()
	leakcheck.Main(m)
}

// testTimeout guards against hanging tests. No test waits for it.
const testTimeout = 2 * time.Minute

// testContext returns a context that ends when a test hangs. A program under test has no t.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("test took too long"))
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

// program returns the Spec of a program of testproc.
func program(name string, args ...string) Spec {
	return Spec{Argv: testproc.Argv(name, args...), Cwd: "/", Env: os.Environ()}
}

// shell returns the Spec of a script for /bin/sh.
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

// waitFor waits until a channel is closed.
func waitFor(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatalf("hung waiting for %s", what)
	}
}

// waitClosed waits until the process is closed, and returns its exit record.
func waitClosed(t testing.TB, p *Process) ExitRecord {
	t.Helper()
	waitFor(t, "closed", p.Closed())
	record, ok := p.Exit()
	if !ok {
		t.Fatal("closed without an exit record")
	}
	return record
}

// transcript is the content of a log.
type transcript struct {
	stdout, stderr, terminal string
	kinds                    []string // of events; repeated kinds or streams only once
}

// logReader reads the log of a process as an observer.
type logReader struct {
	t      testing.TB
	reader *eventlog.Reader
	got    transcript
	ended  bool
}

func readLog(t testing.TB, p *Process) *logReader {
	t.Helper()
	reader, err := p.Log().NewReader(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return &logReader{t: t, reader: reader}
}

// next reads the next batch.
func (l *logReader) next() {
	l.t.Helper()
	batch, err := l.reader.Next(testContext(l.t), 0)
	switch {
	case errors.Is(err, io.EOF):
		l.ended = true
		return
	case err != nil:
		l.t.Fatalf("%v; read so far: %+v", err, l.got)
	case batch.Gap != nil:
		l.t.Fatalf("gap: %+v", *batch.Gap)
	}
	for _, event := range batch.Events {
		l.got.add(event)
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

// until reads until the output of all streams together contains text.
func (l *logReader) until(text string) transcript {
	l.t.Helper()
	for !strings.Contains(l.got.stdout+l.got.stderr+l.got.terminal, text) {
		if l.ended {
			l.t.Fatalf("ended before %q: %+v", text, l.got)
		}
		l.next()
	}
	return l.got
}

// all reads until the log is closed.
func (l *logReader) all() transcript {
	l.t.Helper()
	for !l.ended {
		l.next()
	}
	return l.got
}

// run starts a process and reads its whole log.
func run(t testing.TB, spec Spec) (transcript, ExitRecord) {
	t.Helper()
	p := start(t, spec)
	output := readLog(t, p).all()
	return output, waitClosed(t, p)
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
	for deadline := time.Now().Add(testTimeout); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("hung waiting for %s", what)
		}
	}
}
