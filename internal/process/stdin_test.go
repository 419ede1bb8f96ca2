package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/testproc"
)

func piped(spec Spec) Spec {
	spec.PipeStdin = true
	return spec
}

func mustWrite(t testing.TB, p *Process, text string) {
	t.Helper()
	if err := p.WriteStdin(testContext(t), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestWriteStdin_DataIsUnchanged(t *testing.T) {
	const size = 8 << 20
	p := start(t, piped(program("echo")))
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- writePattern(t, p, size) }()
	verifier := testproc.StdoutPattern.NewVerifier()
	for last := false; !last; {
		batch, err := owner.Next(testContext(t), 0)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, event := range batch.Events {
			if event.Stream == eventlog.Stdout {
				if _, err := verifier.Write(event.Data); err != nil {
					t.Fatal(err)
				}
			}
			_ = owner.Acknowledge(event.Seq)
		}
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if verifier.Offset() != size {
		t.Errorf("%d bytes came back", verifier.Offset())
	}
	if total := p.Log().Stats().Totals[eventlog.Stderr]; total != uint64(len("end of input\n")) {
		t.Errorf("%d bytes on stderr: the child received no end of input", total)
	}
}

// writePattern writes in chunks of varying size and closes the input.
func writePattern(t testing.TB, p *Process, size int) error {
	for offset, n := 0, 1; offset < size; n = n*3%65521 + 1 {
		data := make([]byte, min(n, size-offset))
		testproc.StdoutPattern.Fill(data, uint64(offset))
		if err := p.WriteStdin(testContext(t), data); err != nil {
			return err
		}
		offset += len(data)
	}
	return p.CloseStdin(testContext(t))
}

func TestStdin_NotPiped_IsEmpty(t *testing.T) {
	p := start(t, program("echo"))
	wantKind(t, p.WriteStdin(testContext(t), []byte("x")), StdinNotPiped)
	wantKind(t, p.CloseStdin(testContext(t)), StdinNotPiped)
	if output := readLog(t, p).all(); output.stdout != "" || output.stderr != "end of input\n" {
		t.Errorf("%+v", output)
	}
}

func TestCloseStdin_FollowsWritesAndIsIdempotent(t *testing.T) {
	p := start(t, piped(program("echo")))
	mustWrite(t, p, "one ")
	mustWrite(t, p, "two")
	mustWrite(t, p, "")
	for range 3 {
		if err := p.CloseStdin(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, p.WriteStdin(testContext(t), []byte("late")), StdinClosed)
	if output := readLog(t, p).all(); output.stdout != "one two" || output.stderr != "end of input\n" {
		t.Errorf("%+v", output)
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Error(err)
	}
	wantKind(t, p.WriteStdin(testContext(t), nil), StdinClosed)
}

func TestWriteStdin_AfterExit_StdinClosed(t *testing.T) {
	for _, spec := range []Spec{piped(shell("exit 0")), func() Spec { s := shell("exit 0"); s.Terminal = &WindowSize{}; return s }()} {
		p := start(t, spec)
		waitFor(t, "exited", p.Exited())
		waitFor(t, "closed", p.Closed())
		wantKind(t, p.WriteStdin(testContext(t), []byte("x")), StdinClosed)
	}
}

func TestWriteStdin_ClosedByChild_StdinClosed(t *testing.T) {
	p := start(t, piped(shell("exec <&-; echo closed; exec sleep 1000")))
	readLog(t, p).until("closed")
	var err error
	for err == nil { // the first write is queued before the error is known
		err = p.WriteStdin(testContext(t), []byte("x"))
	}
	wantKind(t, err, StdinClosed)
}

func TestWriteStdin_MaxWriteBytes(t *testing.T) {
	s := newSupervisor(t, Config{MaxWriteBytes: 100, StdinQueueBytes: 10})
	p, err := s.Start(testContext(t), piped(program("echo")))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.WriteStdin(testContext(t), make([]byte, 101)), WriteTooLarge)
	// A write larger than the queue but within MaxWriteBytes is accepted if the queue is empty.
	text := strings.Repeat("x", 100)
	mustWrite(t, p, text)
	mustWrite(t, p, text)
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if output := readLog(t, p).all(); output.stdout != text+text {
		t.Errorf("%q", output.stdout)
	}
}

// fillStdin fills the input of a process that does not read, so that another write of this size
// blocks.
func fillStdin(t *testing.T, p *Process) {
	t.Helper()
	const size, pipe = 60000, 64 << 10
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("it would wait"))
	total := 0
	poll(t, "the input to fill up", func() bool {
		err := p.WriteStdin(ended, bytes.Repeat([]byte("x"), size))
		if err == nil {
			total += size
		} else if !errors.Is(err, context.Cause(ended)) {
			t.Fatal(err)
		}
		staysQueued := total - pipe // never leaves the queue
		return err != nil && staysQueued > 0 && staysQueued+size > p.stdin.limit
	})
}

func TestWriteStdin_ChildNeverReads_BlocksOnlyItsWriters(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	blocked, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	readLog(t, blocked).until("ready")
	fillStdin(t, blocked)
	writers := make(chan error, 3)
	for range 2 {
		go func() { writers <- blocked.WriteStdin(testContext(t), make([]byte, 60000)) }()
	}
	go func() { writers <- blocked.CloseStdin(testContext(t)) }()

	other, err := s.Start(testContext(t), piped(program("echo")))
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, other, "hello")
	readLog(t, other).until("hello")

	if _, err := blocked.Terminate(testContext(t), Termination{}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // unblocked by the exit
		if err := <-writers; err != nil && KindOf(err) != StdinClosed {
			t.Error(err)
		}
	}
}

func TestWriteStdin_BlockedWritersKeepOrder(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 1 << 16})
	gate := t.TempDir() + "/gate"
	spec := piped(shell("mkfifo " + gate + "; echo ready; read x < " + gate + "; exec cat"))
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	l := readLog(t, p)
	l.until("ready")
	fillStdin(t, p)
	const writers = 20
	results := make(chan error, writers)
	for i := range writers {
		text := fmt.Sprintf("<%02d>", i)
		go func() { results <- p.WriteStdin(testContext(t), []byte(text+strings.Repeat(".", 30000))) }()
		waitForWriters(t, p, i+1)
	}
	write(t, gate, "go\n", 0)
	for range writers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	output := strings.NewReplacer("x", "", ".", "", "ready\n", "").Replace(l.all().stdout)
	want := ""
	for i := range writers {
		want += fmt.Sprintf("<%02d>", i)
	}
	if output != want {
		t.Errorf("order %s", output)
	}
}

func TestCloseStdin_DoesNotWaitForWriters(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	gate := t.TempDir() + "/gate"
	p, err := s.Start(testContext(t), piped(shell("mkfifo "+gate+"; echo ready; read x < "+gate+"; tr -d x")))
	if err != nil {
		t.Fatal(err)
	}
	l := readLog(t, p)
	l.until("ready")
	fillStdin(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	waiting, givenUp := make(chan error, 1), make(chan error, 1)
	go func() { waiting <- p.WriteStdin(testContext(t), []byte("last"+strings.Repeat("x", 60000))) }()
	waitForWriters(t, p, 1)
	go func() { givenUp <- p.WriteStdin(ctx, []byte("never"+strings.Repeat("x", 60000))) }()
	waitForWriters(t, p, 2)

	for range 2 { // returns although the child does not read
		if err := p.CloseStdin(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, p.WriteStdin(testContext(t), []byte("late")), StdinClosed)
	gone := errors.New("client gone")
	cancel(gone)
	if err := <-givenUp; !errors.Is(err, gone) {
		t.Error(err)
	}
	write(t, gate, "go\n", 0)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if output := l.all(); output.stdout != "ready\nlast" {
		t.Errorf("%q", output.stdout)
	}
	wantKind(t, p.WriteStdin(testContext(t), nil), StdinClosed)
}

func waitForWriters(t *testing.T, p *Process, n int) {
	t.Helper()
	poll(t, "a writer to queue up", func() bool {
		p.stdin.mu.Lock()
		defer p.stdin.mu.Unlock()
		return len(p.stdin.waiting) >= n
	})
}

func TestWriteStdin_Cancelled_IsNotWritten(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 1000})
	p, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	fillStdin(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	result := make(chan error, 1)
	go func() { result <- p.WriteStdin(ctx, make([]byte, 5000)) }()
	waitForWriters(t, p, 1)
	gone := errors.New("client gone")
	cancel(gone)
	if err := <-result; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	p.stdin.mu.Lock()
	defer p.stdin.mu.Unlock()
	if len(p.stdin.waiting) != 0 {
		t.Errorf("%d tickets are left", len(p.stdin.waiting))
	}
}

// unreadInput returns an input that is written to a pipe only when drain is called.
func unreadInput(limit int) (in *stdin, drain func(t *testing.T) string) {
	var empty func()
	in = &stdin{limit: limit, start: func(f func(context.Context)) { empty = func() { f(context.Background()) } }}
	return in, func(t *testing.T) string {
		readEnd, writeEnd, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		in.file = writeEnd
		in.requestEnd()
		go empty()
		data, err := io.ReadAll(readEnd)
		if err != nil {
			t.Error(err)
		}
		_ = readEnd.Close()
		return string(data)
	}
}

func TestStdin_SmallWritesShareChunks(t *testing.T) {
	const limit = 1 << 18
	in, drain := unreadInput(limit)
	want := make([]byte, limit)
	testproc.StdoutPattern.Fill(want, 0)
	ctx := testContext(t)
	before := memoryInUse()
	for i := range want {
		message := make([]byte, 1<<10) // must not be retained
		message[0] = want[i]
		if err := in.write(ctx, message[:1], nil); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(memoryInUse()) - int64(before); grown > 2*limit {
		t.Errorf("%d queued bytes hold %d", limit, grown)
	}
	if pieces := len(in.queue); pieces != limit/smallWrite {
		t.Errorf("%d pieces", pieces)
	}
	if drain(t) != string(want) {
		t.Error("the data has changed")
	}
}

func TestStdin_WritesKeepOrderAndCallerMemory(t *testing.T) {
	in, drain := unreadInput(1 << 20)
	want := ""
	for i, size := range []int{1, 10, smallWrite - 1, 2, smallWrite, 3, smallWrite + 1, 1, 1, smallWrite - 2, 1, 5} {
		free := bytes.Repeat([]byte("."), 2*smallWrite)
		memory := slices.Concat(bytes.Repeat([]byte{byte('a' + i)}, size), free)
		piece := memory[:size]
		want += string(piece)
		if err := in.write(testContext(t), piece, nil); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if !bytes.Equal(memory[size:], free) {
				t.Errorf("the memory after piece %d was overwritten", i)
			}
		}()
	}
	if got := drain(t); got != want {
		t.Errorf("got %d bytes, want %d, or other content", len(got), len(want))
	}
}

func TestStdin_ChunkBeingWritten_DoesNotGrow(t *testing.T) {
	in, _ := unreadInput(100)
	for _, text := range []string{"a", "b"} {
		if err := in.write(testContext(t), []byte(text), nil); err != nil {
			t.Fatal(err)
		}
	}
	taken := in.nextChunk()
	if err := in.write(testContext(t), []byte("c"), nil); err != nil {
		t.Fatal(err)
	}
	if next := in.nextChunk(); string(taken) != "ab" || string(next) != "c" {
		t.Errorf("wrote %q, then %q", taken, next)
	}
}

func TestWriteStdin_SmallWriteWaitsBehindLargeOne(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	p, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	fillStdin(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	large, small := make(chan error, 1), make(chan error, 1)
	go func() { large <- p.WriteStdin(ctx, make([]byte, 60000)) }()
	waitForWriters(t, p, 1)
	go func() { small <- p.WriteStdin(testContext(t), []byte("x")) }() // it would fit
	waitForWriters(t, p, 2)
	gone := errors.New("client gone")
	cancel(gone)
	if err := <-large; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if err := <-small; err != nil {
		t.Errorf("%v", err)
	}
}

// What accepts input has done so when the process answers it.
func TestQueueStdin_AcceptsBeforeProcessCanRead(t *testing.T) {
	p := start(t, piped(program("never-read")))
	inPipe := func() (n int) {
		_ = p.stdin.conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		return n
	}
	refused := errors.New("refused")
	for _, want := range []error{refused, nil} {
		calls := 0
		err := p.QueueStdin(testContext(t), []byte("input"), func() error {
			calls++
			if n := inPipe(); n != 0 {
				t.Errorf("%d bytes are in the pipe before the call", n)
			}
			return want
		})
		wantBytes := 0
		if want == nil {
			wantBytes = len("input")
		}
		if n := inPipe(); !errors.Is(err, want) || calls != 1 || n != wantBytes {
			t.Errorf("accept returned %v: %d calls, then %d bytes in the pipe, %v", want, calls, n, err)
		}
	}
}
