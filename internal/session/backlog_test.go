package session

import (
	"bytes"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/testproc"
)

// spoolLife is the life of one log whose owner comes and goes: a client that
// takes and acknowledges some, then a spooler, then a client again.
type spoolLife struct {
	log     *eventlog.Log
	spool   *spool
	process *Process
	window  int

	cursor *cursor // of the client, or of the spooler
	spools bool
	said   []byte   // all that was appended
	ends   []uint64 // of each event, the bytes said up to it
	taken  uint64   // the client's seq
	acked  uint64
}

var spoolLimits = eventlog.Limits{RetainedBytes: 32 << 10, RetainedEvents: 200, WindowBytes: 16 << 10, SnapshotBytes: 1 << 10, Held: true}

// newSpoolLife makes a session without a registry: enough for cursors.
func newSpoolLife(t rapid.TB) *spoolLife {
	sp, err := newSpool("", 256<<10, func(f func()) bool { f(); return true })
	if err != nil {
		t.Fatal(err)
	}
	life := &spoolLife{log: eventlog.New(spoolLimits), spool: sp, window: spoolLimits.WindowBytes}
	life.process = &Process{id: "p", session: &Session{spool: sp}}
	return life
}

// say writes as much of n bytes as the window allows.
func (l *spoolLife) say(n int) {
	w := l.log.Writer(eventlog.Stdout)
	for n > 0 {
		buf := w.Buffer()
		if buf == nil {
			return
		}
		size := min(n, len(buf))
		testproc.StdoutPattern.Fill(buf[:size], uint64(len(l.said)))
		l.said = append(l.said, buf[:size]...)
		w.Commit(size)
		n -= size
		l.note()
	}
}

// note remembers where events end.
func (l *spoolLife) note() {
	for last := l.log.Stats().LastSeq; uint64(len(l.ends)) < last; {
		before := uint64(0)
		if len(l.ends) > 0 {
			before = l.ends[len(l.ends)-1]
		}
		chunk := min(uint64(len(l.said))-before, uint64(spoolLimits.RetainedBytes/4))
		l.ends = append(l.ends, before+chunk)
	}
}

// attach gives the log to a client that says what it has taken, or not.
func (l *spoolLife) attach(t rapid.TB, told bool) {
	var after *uint64
	if told {
		after = &l.taken
		l.acked = l.taken
	} else {
		l.taken = l.acked
	}
	l.take(t, func() (*cursor, error) { return newCursor(l.log, l.process.backlog, after) }, false)
}

// detach gives it to the spooler.
func (l *spoolLife) detach(t rapid.TB) {
	l.take(t, func() (*cursor, error) {
		if l.process.backlog == nil {
			l.process.backlog = &backlog{spool: l.spool}
		}
		return newSpoolCursor(l.log, l.process.backlog)
	}, true)
}

func (l *spoolLife) take(t rapid.TB, open func() (*cursor, error), spools bool) {
	l.process.seal()
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if l.cursor != nil {
		l.cursor.release(false)
	}
	l.cursor, l.spools = c, spools
}

// step takes one batch, as a client or as the spooler.
func (l *spoolLife) step(t rapid.TB, maxBytes int) {
	batch, ok, err := l.cursor.tryNext(maxBytes)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if !ok {
		return
	}
	if batch.Gap != nil {
		t.Fatalf("a gap %+v", batch.Gap)
	}
	if l.spools {
		l.put(t, batch)
		return
	}
	for _, e := range batch.Events {
		if e.Seq != l.taken+1 {
			t.Fatalf("event %d follows %d", e.Seq, l.taken)
		}
		l.taken = e.Seq
		if e.Kind == eventlog.Output && !bytes.Equal(e.Data, l.said[e.Offset:e.Offset+uint64(len(e.Data))]) {
			t.Fatalf("event %d has other bytes than were said", e.Seq)
		}
	}
	// One event of the log may exceed it.
	if open := l.upTo(l.taken) - l.upTo(l.acked); open > uint64(l.window+spoolLimits.RetainedBytes/4) {
		t.Fatalf("%d bytes are not acknowledged, the window is %d", open, l.window)
	}
}

func (l *spoolLife) put(t rapid.TB, batch eventlog.Batch) {
	n := uint64(0)
	for _, e := range batch.Events {
		n += uint64(len(e.Data))
	}
	last := batch.Events[len(batch.Events)-1].Seq
	switch err := l.process.backlog.append(l.cursor, appendBatch(nil, batch), last, n); err {
	case nil:
	case errSpoolFull:
		l.detach(t) // what it has read it will read again
	default:
		t.Fatal(err)
	}
}

// upTo is how many bytes were said up to an event.
func (l *spoolLife) upTo(seq uint64) uint64 {
	if seq = min(seq, uint64(len(l.ends))); seq == 0 { // the last two are not output
		return 0
	}
	return l.ends[seq-1]
}

// check holds after every step.
func (l *spoolLife) check(t rapid.TB) {
	l.spool.mu.Lock()
	defer l.spool.mu.Unlock()
	used := uint32(0)
	if b := l.process.backlog; b != nil {
		used = uint32(len(b.blocks))
		if b.tail == b.end && used != 0 || b.tail < b.base || b.end < b.tail {
			t.Fatalf("a backlog from %d to %d has %d blocks from %d", b.tail, b.end, used, b.base)
		}
		if r := b.reader; r != nil && b.tail < b.end && l.acked == l.taken && l.cursor.replay == r && r.place > b.tail {
			t.Fatalf("all was acknowledged up to %d, and %d is kept", r.place, b.tail)
		}
		if b.tail < b.end && b.tail-b.base >= l.spool.blockBytes {
			t.Fatalf("the first block of a backlog is not used: %d, %d", b.base, b.tail)
		}
	}
	if used+uint32(len(l.spool.free)) != l.spool.made || l.spool.made > l.spool.most {
		t.Fatalf("%d blocks are used and %d free of %d", used, len(l.spool.free), l.spool.made)
	}
}

func TestSpooledLifeLosesAndRepeatsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newSpoolLife(t)
		defer l.spool.close()
		l.attach(t, true)
		sizes := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1000, 40_000))
		t.Repeat(map[string]func(*rapid.T){
			"say":    func(t *rapid.T) { l.say(sizes.Draw(t, "bytes")) },
			"attach": func(t *rapid.T) { l.attach(t, rapid.Bool().Draw(t, "told")) },
			"detach": func(t *rapid.T) { l.detach(t) },
			"step": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "steps") {
					l.step(t, sizes.Draw(t, "at most"))
				}
			},
			"acknowledge": func(t *rapid.T) {
				if l.spools || l.taken == 0 {
					t.Skip("nobody is there")
				}
				seq := rapid.Uint64Range(l.acked, l.taken).Draw(t, "seq")
				if err := l.cursor.acknowledge(seq); err != nil {
					t.Fatal(err)
				}
				l.acked = max(l.acked, seq)
			},
			"": func(t *rapid.T) { l.check(t) },
		})
		l.end(t)
	})
}

// end closes the log and takes everything.
func (l *spoolLife) end(t rapid.TB) {
	l.attach(t, true)
	l.log.Writer(eventlog.Stdout).Close()
	l.log.AppendExited()
	last := l.log.AppendClosed()
	for stuck := 0; l.taken < last; stuck++ {
		before := l.taken
		l.step(t, 0)
		if err := l.cursor.acknowledge(l.taken); err != nil {
			t.Fatal(err)
		}
		if l.acked = l.taken; l.taken > before {
			stuck = 0
		}
		if stuck > 10 {
			t.Fatalf("nothing follows %d, the last is %d", l.taken, last)
		}
	}
	if got := l.upTo(l.taken); got != uint64(len(l.said)) {
		t.Fatalf("%d bytes were taken, %d said", got, len(l.said))
	}
	if b := l.process.backlog; b != nil && !b.isTaken(l.log) {
		t.Fatal("it does not know that everything was taken")
	}
	l.check(t)
}

// TestClientComesWhileItsOutputIsWritten has a client attach in the middle of a
// write to the spool: what is being written is still the log's.
func TestClientComesWhileItsOutputIsWritten(t *testing.T) {
	for _, spooledBefore := range []bool{false, true} {
		l := newSpoolLife(t)
		defer l.spool.close()
		l.attach(t, true)
		l.detach(t)
		if spooledBefore {
			l.say(1000)
			l.step(t, 0)
		}
		l.say(1000)
		file := &tellingFile{spoolFile: l.spool.file, written: func() { l.attach(t, true) }}
		l.spool.file = file
		batch, _, err := l.cursor.tryNext(0)
		if err != nil {
			t.Fatal(err)
		}
		spooler := l.cursor
		if err := l.process.backlog.append(spooler, appendBatch(nil, batch), batch.Events[len(batch.Events)-1].Seq, 1000); err != errSpoolSealed {
			t.Errorf("append = %v", err)
		}
		l.check(t)
		l.end(t)
	}
}

// tellingFile tells of its first write, before that is done.
type tellingFile struct {
	spoolFile

	written func()
}

func (f *tellingFile) WriteAt(b []byte, at int64) (int, error) {
	if tell := f.written; tell != nil {
		f.written = nil
		tell()
	}
	return f.spoolFile.WriteAt(b, at)
}

// A client that forgot what it had acknowledged is told so.
func TestCursorBelowWhatWasSpooledIsAGap(t *testing.T) {
	l := newSpoolLife(t)
	defer l.spool.close()
	l.attach(t, true)
	for range 3 {
		l.say(1000)
	}
	l.step(t, 1)
	if err := l.cursor.acknowledge(1); err != nil {
		t.Fatal(err)
	}
	l.detach(t)
	l.step(t, 1)
	l.step(t, 1)
	after := uint64(0)
	l.process.seal()
	c, err := newCursor(l.log, l.process.backlog, &after)
	if err != nil {
		t.Fatal(err)
	}
	batch, ok, err := c.tryNext(1)
	if err != nil || !ok || batch.Gap == nil {
		t.Fatalf("it reads %+v, %v, %v", batch, ok, err)
	}
	if want := (eventlog.Gap{FirstAvailableSeq: 2, DroppedBytes: 1000}); *batch.Gap != want || batch.Events[0].Seq != 2 {
		t.Errorf("the gap is %+v, want %+v", *batch.Gap, want)
	}
}

// What the log has beyond the spool waits for room in the window as well.
func TestWindowSpansSpoolAndLog(t *testing.T) {
	l := newSpoolLife(t)
	defer l.spool.close()
	l.attach(t, true)
	l.detach(t)
	l.say(l.window)
	for range 10 {
		l.step(t, 0)
	}
	l.say(l.window)
	l.attach(t, true)
	for range 20 {
		l.step(t, 0) // which checks the window
	}
	if open := l.upTo(l.taken); open < uint64(l.window)/2 || open == uint64(len(l.said)) {
		t.Errorf("%d of %d bytes were delivered", open, len(l.said))
	}
	told := 0
	l.cursor.notify(func() { told++ })
	if told != 0 {
		t.Error("told of something though the window is used up")
	}
	if err := l.cursor.acknowledge(l.taken); err != nil || told != 1 {
		t.Errorf("told %d times of room in the window, %v", told, err)
	}
	l.acked = l.taken
	l.end(t)
}
