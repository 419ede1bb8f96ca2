package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

// TestFreeze runs the scenarios in a program of its own, where what a frozen registry leaves
// ends with the program, as it does after an execve.
func TestFreeze(t *testing.T) {
	argv := testproc.Argv(freezeProgram)
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	defer cancel()
	if output, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

const freezeProgram = "freeze-sessions"

func init() {
	testproc.Register(freezeProgram, func([]string) int {
		r := &reporter{}
		for _, scenario := range []func(testing.TB){freezeStream, freezeLeasedSession, freezeRecords, freezeEndings} {
			scenario(r)
		}
		return r.code
	})
}

// reporter reports errors of a program.
type reporter struct {
	testing.TB
	code int
}

func (r *reporter) Helper() {}

func (r *reporter) Errorf(format string, args ...any) {
	r.code = 1
	_, file, line, _ := runtime.Caller(2)
	fmt.Fprintf(os.Stderr, "%s:%d: %s\n", filepath.Base(file), line, fmt.Sprintf(format, args...))
}

func (r *reporter) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *reporter) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	_, file, line, _ := runtime.Caller(2)
	fmt.Fprintf(os.Stderr, "called at %s:%d\n", filepath.Base(file), line)
	syscall.Exit(1)
}

func (r *reporter) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// programs are registries of the same sessions, one after another.
type programs struct {
	t        testing.TB
	cfg      session.Config
	registry *session.Registry
	ctx      context.Context
}

func newPrograms(t testing.TB, cfg session.Config) *programs {
	t.Helper()
	cfg.DefaultGrace, cfg.MaxGrace = time.Hour, time.Hour
	cfg.ClosedRetention, cfg.UnseenRetention, cfg.UnseenPerPrincipal = time.Hour, 2*time.Hour, 10
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	context.AfterFunc(ctx, cancel)
	return &programs{t: t, cfg: cfg, ctx: ctx, registry: session.NewRegistry(process.NewSupervisor(process.Config{}), cfg)}
}

func (p *programs) close() {
	p.t.Helper()
	if err := p.registry.Close(p.ctx); err != nil {
		p.t.Errorf("closing: %v", err)
	}
}

func (p *programs) freeze() *session.State {
	p.t.Helper()
	state, err := p.registry.Freeze(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return state
}

// thaw freezes and thaws.
func (p *programs) thaw() {
	p.t.Helper()
	p.freeze()
	p.registry.Thaw()
}

// replace goes on with a registry that was restored from the state, whose files are closed.
func (p *programs) replace() {
	p.t.Helper()
	state := p.freeze()
	duplicateFiles(p.t, reflect.ValueOf(state))
	registry, _, err := session.Restore(process.Config{}, p.cfg, state)
	if err != nil {
		p.t.Fatal(err)
	}
	p.registry = registry
}

// duplicateFiles replaces the files in a value by duplicates, as another program has them.
func duplicateFiles(t testing.TB, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[*os.File]():
		if file := v.Interface().(*os.File); file != nil {
			v.Set(reflect.ValueOf(duplicate(t, file)))
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		duplicateFiles(t, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			duplicateFiles(t, v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				duplicateFiles(t, v.Field(i))
			}
		}
	}
}

func duplicate(t testing.TB, file *os.File) (copied *os.File) {
	t.Helper()
	conn, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		number, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
		}
		copied = os.NewFile(uintptr(number), file.Name())
	})
	if err != nil || file.Close() != nil {
		t.Fatal("a file of the state was closed", err)
	}
	return copied
}

func (p *programs) open(id string) *session.Session {
	p.t.Helper()
	s, err := p.registry.Open("tester", id, session.AccessOwner)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *programs) process(sessionID, id string) *session.Process {
	p.t.Helper()
	found, err := p.open(sessionID).Process(id)
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// own resumes a process of the default session after an event, as a stream.
func (p *programs) own(id string, afterSeq uint64) *session.Ownership {
	p.t.Helper()
	o, err := p.process("", id).Own(p.ctx, afterSeq, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return o
}

// A stream that resumes gets every byte once, and its input is accepted once, whether the
// program goes on or another one takes its place.
func freezeStream(t testing.TB) {
	p := newPrograms(t, session.Config{})
	defer p.close()
	cat := spec("/bin/cat")
	cat.Output.WindowBytes = 20_000
	o, _, err := p.open("").StartOwned(p.ctx, "cat", session.Digest{1}, cat, session.StartOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const size = 200_000
	input := []byte(strings.Repeat("0123456789abcde\n", size/16))
	var output strings.Builder
	written, seq := 0, uint64(0)
	for round := 0; output.Len() < size; round++ {
		end := min(written+50_000, size)
		if written < size && written-output.Len() < 100_000 {
			accepted, err := o.WriteStdin(p.ctx, uint64(max(0, written-1000)), input[max(0, written-1000):end], end == size)
			if err != nil || accepted != uint64(end) {
				t.Fatalf("accepted %d: %v", accepted, err)
			}
			written = end
		}
		for batches := 0; batches < 1+round%3 && output.Len() < size; batches++ {
			batch, err := o.Next(p.ctx, 0)
			if err != nil || batch.Gap != nil {
				t.Fatalf("after %d bytes: %v, gap %v", output.Len(), err, batch.Gap)
			}
			for _, event := range batch.Events {
				output.Write(event.Data)
				seq = event.Seq
			}
			if err := o.Acknowledge(seq); err != nil {
				t.Fatal(err)
			}
		}
		before := o
		o.Lost()
		if round%2 == 0 {
			p.thaw()
		} else {
			p.replace()
		}
		last, err := p.process("", "cat").Ownership(before.ID())
		if err != nil {
			t.Fatalf("the lost ownership: %v", err)
		}
		_, err = last.WriteStdin(p.ctx, uint64(written), []byte("x"), false)
		wantKind(t, err, session.OwnerLost)
		wantKind(t, last.Acknowledge(seq), session.OwnerLost)
		o = p.own("cat", seq)
		if got := o.Process().StdinOffset(); got != uint64(written) {
			t.Fatalf("%d bytes were accepted, want %d", got, written)
		}
	}
	if output.String() != string(input) {
		t.Error("the output is not the input")
	}
	for {
		batch, err := o.Next(p.ctx, 0)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Acknowledge(batch.Events[len(batch.Events)-1].Seq); err != nil {
			t.Fatal(err)
		}
	}
	if exit, exited := o.Process().Exit(); !exited || exit.Code != 0 || exit.Cause != process.CauseExited {
		t.Errorf("%+v, %v", exit, exited)
	}
	if got := o.Process().StdinBytes(); got != size {
		t.Errorf("%d bytes of input are counted", got)
	}
}

// An attachment that resumes gets the processes of its session, also those that have ended.
func freezeLeasedSession(t testing.TB) {
	p := newPrograms(t, session.Config{})
	defer p.close()
	grace := 30 * time.Minute
	a, err := p.registry.Attach(p.ctx, "tester", session.AttachRequest{Grace: &grace, MaxProcesses: 2})
	if err != nil {
		t.Fatal(err)
	}
	id := a.Session().ID()
	if _, err := p.registry.Grant("tester", id, "friend", session.AccessView); err != nil {
		t.Fatal(err)
	}
	created := a.Session().Info("tester").Created
	for name, script := range map[string]string{"ended": "echo out; exit 5", "running": "echo ready; read x; echo $x"} {
		if _, _, err := a.Session().Start(p.ctx, name, session.Digest{2}, spec("/bin/sh", "-c", script), session.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	<-p.process(id, "ended").Closed()
	if err := p.process(id, "running").WriteStdinOnce(p.ctx, "first", []byte("on")); err != nil {
		t.Fatal(err)
	}
	a.Lost()
	p.thaw()
	p.replace()
	p.replace()
	info := p.open(id).Info("tester")
	if !info.Created.Equal(created) || info.Attached || info.Processes != 2 || info.Grace != grace || info.Grants["friend"] != session.AccessView {
		t.Errorf("%+v", info)
	}
	if left := time.Until(info.Expires); left <= 0 || left > grace {
		t.Errorf("the grace ends in %v", left)
	}
	if _, err := p.registry.Open("friend", id, session.AccessView); err != nil {
		t.Error(err)
	}
	running := p.process(id, "running")
	for _, write := range []struct{ id, data string }{{"first", "on"}, {"second", "ce\n"}} { // the first is repeated
		if err := running.WriteStdinOnce(p.ctx, write.id, []byte(write.data)); err != nil {
			t.Fatal(err)
		}
	}
	a, err = p.registry.Attach(p.ctx, "tester", session.AttachRequest{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Lost()
	_, _, err = a.Session().Start(p.ctx, "other", session.Digest{3}, spec("/bin/true"), session.StartOptions{})
	if err != nil {
		t.Errorf("the second running process: %v", err)
	}
	got := map[string]string{}
	for closed := 0; closed < 3; {
		d, err := a.Next(p.ctx, 0)
		if err != nil || d.Batch.Gap != nil {
			t.Fatal(err, d.Batch.Gap)
		}
		for _, event := range d.Batch.Events {
			got[d.Process.ID()] += string(event.Data)
			if event.Kind == eventlog.Closed {
				closed++
			}
			if err := a.Acknowledge(d.Process.ID(), event.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := map[string]string{"ended": "out\n", "running": "ready\nonce\n", "other": ""}; got["ended"] != want["ended"] || got["running"] != want["running"] {
		t.Errorf("output %q, want %q", got, want)
	}
	if exit, _ := p.process(id, "ended").Exit(); exit.Code != 5 {
		t.Errorf("%+v", exit)
	}
}

// Records at rest keep their retention, whether their exit was seen or not, and count for
// the budget as before.
func freezeRecords(t testing.TB) {
	reported := make(chan string, 10)
	p := newPrograms(t, session.Config{RetainedTotal: 1 << 30, OnClosed: func(of *session.Process) { reported <- of.ID() }})
	defer p.close()
	for _, id := range []string{"seen", "unseen"} {
		if _, _, err := p.open("").Start(p.ctx, id, session.Digest{1}, spec("/bin/true"), session.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		p.registry.Drained(p.process("", id))
		if got := <-reported; got != id {
			t.Fatalf("%s was reported", got)
		}
	}
	p.process("", "seen").Seen("tester")
	before := p.registry.Totals()
	p.replace()
	if after := p.registry.Totals(); after.Running != before.Running || after.Sessions != before.Sessions {
		t.Errorf("%+v, before %+v", after, before)
	}
	state := p.freeze()
	p.registry.Thaw()
	for _, of := range state.Sessions[0].Processes {
		isSeen := of.ID == "seen"
		if of.Seen != isSeen || of.EvictFirst != isSeen || !of.AtRest {
			t.Errorf("%+v", of)
		}
		if limit := map[bool]time.Duration{true: time.Hour, false: 2 * time.Hour}[isSeen]; of.Expiry <= limit-30*time.Minute || of.Expiry > limit {
			t.Errorf("%s expires in %v", of.ID, of.Expiry)
		}
	}
	_, created, err := p.open("").Start(p.ctx, "seen", session.Digest{1}, spec("/bin/true"), session.StartOptions{})
	if err != nil || created {
		t.Errorf("a repeated start: created %v, %v", created, err)
	}
	p.registry.Drain()
	if _, err := p.registry.Freeze(p.ctx); err == nil {
		t.Error("a registry that drains was frozen")
	}
	if err := p.registry.WaitIdle(p.ctx); err != nil {
		t.Error(err)
	}
}

// A session that is being closed, and a process whose owner did not return, still end.
func freezeEndings(t testing.TB) {
	p := newPrograms(t, session.Config{})
	defer p.close()
	script := "trap '' TERM; echo ready; while :; do read x || sleep 0.05; done"
	none := time.Duration(0)
	o, _, err := p.open("").StartOwned(p.ctx, "lost", session.Digest{1}, spec("/bin/sh", "-c", script), session.StartOptions{}, &none)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.registry.Attach(p.ctx, "tester", session.AttachRequest{Grace: &none})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Session().Start(p.ctx, "closed", session.Digest{1}, spec("/bin/sh", "-c", script), session.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	id := a.Session().ID()
	o.Lost()
	a.Lost()
	p.replace()
	lost := p.process("", "lost")
	select {
	case <-lost.Closed():
	case <-p.ctx.Done():
		t.Fatal("the process whose owner was lost does not end")
	}
	if exit, _ := lost.Exit(); exit.Cause != process.CauseTerminated {
		t.Errorf("%+v", exit)
	}
	err = p.registry.CloseSession(p.ctx, "tester", id) // waits, or it has ended
	if err != nil {
		wantKind(t, err, session.SessionNotFound)
	}
	p.registry.Drain()
	if err := p.registry.WaitClosed(p.ctx); err != nil {
		t.Error(err)
	}
	if totals := p.registry.Totals(); totals.Sessions != 1 {
		t.Errorf("%+v", totals)
	}
}
