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

func TestStdinComesOutExactly(t *testing.T) {
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
		t.Errorf("%d bytes on stderr: the child saw no end of input", total)
	}
}

// writePattern writes in pieces of changing sizes and closes the input.
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

func TestStdinIsEmptyUnlessPiped(t *testing.T) {
	p := start(t, program("echo"))
	wantKind(t, p.WriteStdin(testContext(t), []byte("x")), StdinNotPiped)
	wantKind(t, p.CloseStdin(testContext(t)), StdinNotPiped)
	if heard := listen(t, p).all(); heard.stdout != "" || heard.stderr != "end of input\n" {
		t.Errorf("%+v", heard)
	}
}

func TestCloseStdinIsIdempotentAndFollowsWhatWasWritten(t *testing.T) {
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
	if heard := listen(t, p).all(); heard.stdout != "one two" || heard.stderr != "end of input\n" {
		t.Errorf("%+v", heard)
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Error(err)
	}
	wantKind(t, p.WriteStdin(testContext(t), nil), StdinClosed)
}

func TestStdinIsClosedAfterTheExit(t *testing.T) {
	for _, spec := range []Spec{piped(shell("exit 0")), func() Spec { s := shell("exit 0"); s.Terminal = &WindowSize{}; return s }()} {
		p := start(t, spec)
		wait(t, "exited", p.Exited())
		wait(t, "closed", p.Closed())
		wantKind(t, p.WriteStdin(testContext(t), []byte("x")), StdinClosed)
	}
}

func TestStdinIsClosedWhenTheChildClosedIt(t *testing.T) {
	p := start(t, piped(shell("exec <&-; echo closed; exec sleep 1000")))
	listen(t, p).until("closed")
	var err error
	for err == nil { // the first write is queued before anybody can know
		err = p.WriteStdin(testContext(t), []byte("x"))
	}
	wantKind(t, err, StdinClosed)
}

func TestWriteStdinHasALargestSize(t *testing.T) {
	s := newSupervisor(t, Config{MaxWriteBytes: 100, StdinQueueBytes: 10})
	p, err := s.Start(testContext(t), piped(program("echo")))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.WriteStdin(testContext(t), make([]byte, 101)), WriteTooLarge)
	// A write above the queue's bound but not above that of a write goes alone.
	text := strings.Repeat("x", 100)
	mustWrite(t, p, text)
	mustWrite(t, p, text)
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if heard := listen(t, p).all(); heard.stdout != text+text {
		t.Errorf("%q", heard.stdout)
	}
}

// stuff fills the input of a process that does not read, so that a further write of this size has to wait.
func stuff(t *testing.T, p *Process) {
	t.Helper()
	const size, pipe = 60000, 64 << 10
	stuffed, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("it would wait"))
	total := 0
	poll(t, "the input to fill up", func() bool {
		err := p.WriteStdin(stuffed, bytes.Repeat([]byte("x"), size))
		if err == nil {
			total += size
		} else if !errors.Is(err, context.Cause(stuffed)) {
			t.Fatal(err)
		}
		stays := total - pipe // queued for ever
		return err != nil && stays > 0 && stays+size > p.in.limit
	})
}

func TestAChildThatNeverReadsKeepsOnlyItsOwnWritersWaiting(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	deaf, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	listen(t, deaf).until("ready")
	stuff(t, deaf)
	writers := make(chan error, 3)
	for range 2 {
		go func() { writers <- deaf.WriteStdin(testContext(t), make([]byte, 60000)) }()
	}
	go func() { writers <- deaf.CloseStdin(testContext(t)) }()

	other, err := s.Start(testContext(t), piped(program("echo")))
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, other, "hello")
	listen(t, other).until("hello")

	if _, err := deaf.Terminate(testContext(t), Termination{}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the exit lets them go
		if err := <-writers; err != nil && KindOf(err) != StdinClosed {
			t.Error(err)
		}
	}
}

func TestWritersThatWaitKeepTheirOrder(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 1 << 16})
	gate := t.TempDir() + "/gate"
	spec := piped(shell("mkfifo " + gate + "; echo ready; read x < " + gate + "; exec cat"))
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, p)
	l.until("ready")
	stuff(t, p)
	const writers = 20
	results := make(chan error, writers)
	for i := range writers {
		text := fmt.Sprintf("<%02d>", i)
		go func() { results <- p.WriteStdin(testContext(t), []byte(text+strings.Repeat(".", 30000))) }()
		waitForTickets(t, p, i+1)
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
	heard := strings.NewReplacer("x", "", ".", "", "ready\n", "").Replace(l.all().stdout)
	want := ""
	for i := range writers {
		want += fmt.Sprintf("<%02d>", i)
	}
	if heard != want {
		t.Errorf("order %s", heard)
	}
}

func TestCloseStdinDoesNotWaitForWriters(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	gate := t.TempDir() + "/gate"
	p, err := s.Start(testContext(t), piped(shell("mkfifo "+gate+"; echo ready; read x < "+gate+"; tr -d x")))
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, p)
	l.until("ready")
	stuff(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	waiting, givenUp := make(chan error, 1), make(chan error, 1)
	go func() { waiting <- p.WriteStdin(testContext(t), []byte("last"+strings.Repeat("x", 60000))) }()
	waitForTickets(t, p, 1)
	go func() { givenUp <- p.WriteStdin(ctx, []byte("never"+strings.Repeat("x", 60000))) }()
	waitForTickets(t, p, 2)

	for range 2 { // returns though nobody reads
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
	if heard := l.all(); heard.stdout != "ready\nlast" {
		t.Errorf("%q", heard.stdout)
	}
	wantKind(t, p.WriteStdin(testContext(t), nil), StdinClosed)
}

func waitForTickets(t *testing.T, p *Process, n int) {
	t.Helper()
	poll(t, "a writer to queue up", func() bool {
		p.in.mu.Lock()
		defer p.in.mu.Unlock()
		return len(p.in.tickets) >= n
	})
}

func TestAGivenUpWriteIsNotWritten(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 1000})
	p, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	stuff(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	result := make(chan error, 1)
	go func() { result <- p.WriteStdin(ctx, make([]byte, 5000)) }()
	waitForTickets(t, p, 1)
	gone := errors.New("client gone")
	cancel(gone)
	if err := <-result; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if len(p.in.tickets) != 0 {
		t.Errorf("%d tickets are left", len(p.in.tickets))
	}
}

// deafInput is an input whose reader is up to the test: its queue is not emptied before drain.
func deafInput(limit int) (in *stdin, drain func(t *testing.T) string) {
	var empty func()
	in = &stdin{limit: limit, start: func(f func()) { empty = f }}
	return in, func(t *testing.T) string {
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		in.file = theirs
		in.end()
		go empty()
		data, err := io.ReadAll(ours)
		if err != nil {
			t.Error(err)
		}
		_ = ours.Close()
		return string(data)
	}
}

func TestSmallWritesShareTheirMemory(t *testing.T) {
	const limit = 1 << 18
	in, drain := deafInput(limit)
	want := make([]byte, limit)
	testproc.StdoutPattern.Fill(want, 0)
	ctx := testContext(t)
	before := memory()
	for i := range want {
		message := make([]byte, 1<<10) // which is not to be kept
		message[0] = want[i]
		if err := in.put(ctx, message[:1]); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(memory()) - int64(before); grown > 2*limit {
		t.Errorf("%d queued bytes hold %d", limit, grown)
	}
	if pieces := len(in.queue); pieces != limit/smallWrite {
		t.Errorf("%d pieces", pieces)
	}
	if drain(t) != string(want) {
		t.Error("they came out as something else")
	}
}

func TestWritesOfAllSizesKeepTheirOrderAndTheCallersMemory(t *testing.T) {
	in, drain := deafInput(1 << 20)
	want := ""
	for i, size := range []int{1, 10, smallWrite - 1, 2, smallWrite, 3, smallWrite + 1, 1, 1, smallWrite - 2, 1, 5} {
		free := bytes.Repeat([]byte("."), 2*smallWrite)
		room := slices.Concat(bytes.Repeat([]byte{byte('a' + i)}, size), free)
		piece := room[:size]
		want += string(piece)
		if err := in.put(testContext(t), piece); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if !bytes.Equal(room[size:], free) {
				t.Errorf("what is behind piece %d was written to", i)
			}
		}()
	}
	if got := drain(t); got != want {
		t.Errorf("%d bytes came out, want %d, or not the same", len(got), len(want))
	}
}

func TestWhatIsBeingWrittenDoesNotGrow(t *testing.T) {
	in, _ := deafInput(100)
	for _, text := range []string{"a", "b"} {
		if err := in.put(testContext(t), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	taken := in.head()
	if err := in.put(testContext(t), []byte("c")); err != nil {
		t.Fatal(err)
	}
	if next := in.head(); string(taken) != "ab" || string(next) != "c" {
		t.Errorf("wrote %q, then %q", taken, next)
	}
}

func TestASmallWriteNeitherOvertakesNorOutlivesALargeOne(t *testing.T) {
	s := newSupervisor(t, Config{StdinQueueBytes: 100_000})
	p, err := s.Start(testContext(t), piped(program("never-read")))
	if err != nil {
		t.Fatal(err)
	}
	stuff(t, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	large, small := make(chan error, 1), make(chan error, 1)
	go func() { large <- p.WriteStdin(ctx, make([]byte, 60000)) }()
	waitForTickets(t, p, 1)
	go func() { small <- p.WriteStdin(testContext(t), []byte("x")) }() // there is room for it
	waitForTickets(t, p, 2)
	gone := errors.New("client gone")
	cancel(gone)
	if err := <-large; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if err := <-small; err != nil {
		t.Errorf("%v", err)
	}
}
