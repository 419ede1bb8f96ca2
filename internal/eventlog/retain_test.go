package eventlog

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// small retains 256 bytes in chunks of at most 64, or 8 events.
var small = Limits{RetainedBytes: 256, RetainedEvents: 8, SnapshotBytes: 16}

func TestRetention_EvictsOldestFirst(t *testing.T) {
	for _, c := range []struct {
		name        string
		size, count int
		first       uint64
		bytes       int
	}{
		{"by bytes, exactly full", 64, 4, 1, 256},
		{"by bytes", 64, 5, 2, 256},
		{"by bytes, whole events", 60, 5, 2, 240},
		{"by events, exactly full", 1, 8, 1, 8},
		{"by events", 1, 9, 2, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New(small)
			for range c.count {
				l.Append(Stdout, make([]byte, c.size))
			}
			if s := l.Stats(); s.FirstRetainedSeq != c.first || s.RetainedBytes != c.bytes {
				t.Errorf("first %d and %d bytes, want %d and %d", s.FirstRetainedSeq, s.RetainedBytes, c.first, c.bytes)
			}
		})
	}
}

func TestGap_SlowObserver_IsExact(t *testing.T) {
	l := New(small)
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	l.Append(Stdout, make([]byte, 10))
	tryNext(t, r, 0)
	for i := range 20 {
		l.Append([]Stream{Stdout, Stderr}[i%2], make([]byte, 10+i))
	}
	first := l.Stats().FirstRetainedSeq
	want := Gap{FirstAvailableSeq: first}
	for seq := uint64(2); seq < first; seq++ {
		want.DroppedBytes += 10 + seq - 2
	}
	b := tryNext(t, r, 0)
	if b.Gap == nil || *b.Gap != want {
		t.Errorf("gap %+v, want %+v", b.Gap, want)
	}
	if b.Events[0].Seq != first {
		t.Errorf("events start at %d, want %d", b.Events[0].Seq, first)
	}
}

func TestGap_LateReader(t *testing.T) {
	for _, c := range []struct {
		after   uint64
		dropped uint64
		inexact bool
	}{
		{0, 640, false}, // exact: from the beginning
		{5, 320, false}, // exact: from the acknowledged seq
		{7, 320, true},  // later: at most what followed
		{3, 640, true},  // earlier: at most everything
		{10, 0, false},  // the last evicted one: no gap
		{11, 0, false},  // retained
		{14, 0, false},  // the end
	} {
		t.Run(fmt.Sprint("after ", c.after), func(t *testing.T) {
			l := New(small)
			l.Append(Stdout, make([]byte, 5*64))
			o := must[*Owner](t)(l.Own(1))
			if err := o.Acknowledge(5); err != nil {
				t.Fatal(err)
			}
			o.Release(false)
			l.Append(Stdout, make([]byte, 9*64))
			r := must[*Reader](t)(l.NewReader(c.after))
			defer r.Close()
			b, _, err := r.TryNext(0)
			if err != nil {
				t.Fatal(err)
			}
			if c.dropped == 0 {
				if b.Gap != nil {
					t.Errorf("gap %+v, want none", b.Gap)
				}
				return
			}
			want := Gap{FirstAvailableSeq: 11, DroppedBytes: c.dropped, Inexact: c.inexact}
			if b.Gap == nil || *b.Gap != want {
				t.Errorf("gap %+v, want %+v", b.Gap, want)
			}
		})
	}
}

func TestRetention_ExitedAndClosed_AreNeverEvicted(t *testing.T) {
	l := New(small)
	l.Append(Stdout, make([]byte, 3*64))
	exited := l.AppendExited()
	l.Append(Stdout, make([]byte, 8*64)) // output of descendants
	closed := l.AppendClosed()

	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	b := tryNext(t, r, 0)
	if b.Gap == nil || *b.Gap != (Gap{FirstAvailableSeq: exited, DroppedBytes: 192}) || text(b) != "!" {
		t.Errorf("first batch %+v %s, want a gap of 192 bytes and the exit", b.Gap, text(b))
	}
	if b.Events[0].Seq != exited {
		t.Errorf("exited has seq %d, want %d", b.Events[0].Seq, exited)
	}
	b = tryNext(t, r, 0)
	if b.Gap == nil || *b.Gap != (Gap{FirstAvailableSeq: 9, DroppedBytes: 256}) {
		t.Errorf("second batch has %+v, want a gap of 256 bytes", b.Gap)
	}
	if _, last := drain(t, r); last != closed {
		t.Errorf("last event %d, want closed, %d", last, closed)
	}

	for after, want := range map[uint64]string{exited - 1: "!", exited: "", exited + 1: ""} {
		r := must[*Reader](t)(l.NewReader(after))
		b := tryNext(t, r, 0)
		if want == "!" && (b.Gap != nil || text(b) != want) || want == "" && b.Events[0].Kind != Output {
			t.Errorf("after %d: gap %+v and %s", after, b.Gap, text(b))
		}
		r.Close()
	}
}

func TestMemory_AfterManySmallEvents_IsFreed(t *testing.T) {
	limits := Limits{SnapshotBytes: 1, RetainedBytes: 1 << 20}
	l := New(limits)
	for range 100_000 {
		l.Append(Stdout, []byte("x"))
	}
	high := l.Stats()
	if high.RetainedEvents != 50_000 {
		t.Errorf("%d events retained", high.RetainedEvents)
	}
	for range 40 {
		l.Append(Stdout, make([]byte, MaxChunkBytes))
	}
	l.mu.Lock()
	records := l.records.bytes()
	l.mu.Unlock()
	if most := 3 * segmentLen * recordBytes; records > most {
		t.Errorf("%d bytes of records are left, want at most %d", records, most)
	}
}

func TestMemory_PinnedByReaders_IsCounted(t *testing.T) {
	l := New(Limits{RetainedBytes: 64 << 10, SnapshotBytes: 1})
	l.Append(Stdout, make([]byte, 64<<10))
	idle := l.Stats().HeldBytes
	r := must[*Reader](t)(l.NewReader(1)) // the first event is in the head anyway
	defer r.Close()
	batch := tryNext(t, r, 1)
	flood(l.Writer(Stdout), 64<<10)
	pinned := l.Stats()
	if pinned.RetainedBytes >= 64<<10 {
		t.Errorf("%d bytes retained beside a pinned block", pinned.RetainedBytes)
	}
	if most := l.Limits().MaxHeldBytes(1, 1); pinned.HeldBytes > most {
		t.Errorf("%d bytes held, want at most %d", pinned.HeldBytes, most)
	}
	if len(batch.Events) == 0 {
		t.Error("the batch has no events")
	}
	r.Close()
	if held := l.Stats().HeldBytes; held >= pinned.HeldBytes {
		t.Errorf("%d bytes held after Close, %d before, %d without a reader", held, pinned.HeldBytes, idle)
	}
}

func TestBlocks_GrowOnlyWhenFilled(t *testing.T) {
	l := New(Limits{})
	w := l.Writer(Stdout)
	for range 100 {
		write(t, w, "a line that a person could read\n")
	}
	if n := len(w.Buffer()); n > firstBlockBytes {
		t.Errorf("buffer of %d bytes for a slow stream", n)
	}
	flood(w, 1<<20)
	most := 0
	for range 3 {
		n := len(w.Buffer())
		w.Commit(n, noTime)
		most = max(most, n)
	}
	if most != 2*MaxChunkBytes {
		t.Errorf("largest buffer %d for a fast stream, want %d", most, 2*MaxChunkBytes)
	}
}

// These read sizes leave as much as possible of each block unused.
func TestMemory_HostileReadSizes_StayWithinBound(t *testing.T) {
	for _, size := range []int{1, 513, 4097, 32769, 57 << 10, 61441, 65400} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := New(Limits{SnapshotBytes: 1, RetainedEvents: 2000})
			w := l.Writer(Stdout)
			flood(w, 1<<20) // grows the blocks
			most := l.Limits().MaxHeldBytes(1, 0)
			for range 100_000 {
				w.Commit(min(size, len(w.Buffer())), noTime)
				if held := l.Stats().HeldBytes; held > most {
					t.Fatalf("%d bytes held, the bound is %d", held, most)
				}
				if l.Stats().Totals[Stdout] > 4<<20 {
					break
				}
			}
		})
	}
}

func TestBatch_PinsFewBlocks(t *testing.T) {
	l := New(Limits{RetainedBytes: 1 << 20, SnapshotBytes: 1})
	ids := []Stream{Stdout, Stderr, Terminal}
	for _, id := range ids {
		flood(l.Writer(id), 256<<10) // grows the blocks
	}
	for i := range 900 { // each block holds bytes of several batches
		l.Append(ids[i%3], make([]byte, 1000))
	}
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	most := batchBlocks * l.Limits().largestBlock()
	for {
		if _, ok, _ := r.TryNext(0); !ok {
			break
		}
		pinned := 0
		for _, b := range r.pinned {
			pinned += len(b.buf)
		}
		if pinned > most {
			t.Fatalf("a batch pins %d bytes, want at most %d", pinned, most)
		}
	}
}

// Everything but the batches of cursors that borrow stays valid while later output is written.
func TestBlocks_UsedAgain_OnlyIfNobodyRefersToThem(t *testing.T) {
	for name, take := range map[string]func(*Log, *Reader) []Event{
		"a batch": func(l *Log, r *Reader) []Event {
			b, _, _ := r.TryNext(0)
			events := slices.Clone(b.Events)
			_, _, _ = r.TryNext(0)
			return events
		},
		"a borrowed batch before the next": func(l *Log, r *Reader) []Event {
			r.Borrow()
			b, _, _ := r.TryNext(0)
			return b.Events
		},
		"a borrowed batch after Close": func(l *Log, r *Reader) []Event {
			r.Borrow()
			b, _, _ := r.TryNext(0)
			events := slices.Clone(b.Events)
			r.Close()
			return events
		},
		"RetainedOutput": func(l *Log, r *Reader) []Event { return slices.Collect(l.RetainedOutput()) },
		"State":          func(l *Log, r *Reader) []Event { return l.State().Events },
		"a view": func(l *Log, r *Reader) []Event {
			v := l.view(Stdout)
			return []Event{{Data: v.head[0]}, {Data: v.tail[0]}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Limits{RetainedBytes: 4 << 10, SnapshotBytes: 100})
			w := l.Writer(Stdout)
			flood(w, 64<<10)
			r := must[*Reader](t)(l.NewReader(l.Stats().FirstRetainedSeq))
			defer r.Close()
			events := take(l, r)
			var want [][]byte
			for _, e := range events {
				want = append(want, bytes.Clone(e.Data))
			}
			for range 1000 {
				buf := w.Buffer()
				for i := range buf {
					buf[i] = '!'
				}
				w.Commit(len(buf), noTime)
			}
			for i, e := range events {
				if !bytes.Equal(e.Data, want[i]) {
					t.Errorf("the data of event %d of %d was overwritten", i+1, len(events))
				}
			}
		})
	}
}

// An owner that borrows until it acknowledges keeps what it has not acknowledged, however its
// ownership ends, and what was acknowledged before it was read.
func TestBlocks_UsedAgain_OnlyAfterAcknowledgement(t *testing.T) {
	all := func(o *Owner) (events []Event) {
		for b, ok, _ := o.TryNext(0); ok; b, ok, _ = o.TryNext(0) {
			events = append(events, b.Events...)
		}
		return events
	}
	own := func(l *Log) *Owner {
		next, _ := l.Own(7)
		next.BorrowUntilAcknowledged()
		return next
	}
	// Each returns events, and the owner of what is written later, if any.
	for name, take := range map[string]func(l *Log, o *Owner) ([]Event, *Owner){
		"acknowledged early": func(_ *Log, o *Owner) ([]Event, *Owner) { _ = o.Acknowledge(8); return all(o), o },
		"released":           func(_ *Log, o *Owner) ([]Event, *Owner) { e := all(o); o.Release(false); return e, nil },
		"held, then freed":   func(l *Log, o *Owner) ([]Event, *Owner) { e := all(o); o.Release(true); l.Free(); return e, nil },
		"held, then owned":   func(l *Log, o *Owner) ([]Event, *Owner) { e := all(o); o.Release(true); return e, own(l) },
		"freed":              func(l *Log, o *Owner) ([]Event, *Owner) { e := all(o); l.Free(); return e, nil },
		"read after Free":    func(l *Log, o *Owner) ([]Event, *Owner) { l.Free(); return all(o), nil },
		"replaced":           func(l *Log, o *Owner) ([]Event, *Owner) { return all(o), own(l) },
		"unacknowledged":     func(_ *Log, o *Owner) ([]Event, *Owner) { _ = o.Acknowledge(2); return all(o)[2:], nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Limits{RetainedBytes: 4 << 10, SnapshotBytes: 100})
			o := must[*Owner](t)(l.Own(0))
			o.BorrowUntilAcknowledged()
			w := l.Writer(Stdout)
			for n := range byte(8) {
				w.Commit(copy(w.Buffer(), bytes.Repeat([]byte{n + 1}, 100)), noTime)
			}
			events, owner := take(l, o)
			for range 1000 {
				if owner != nil {
					_ = owner.Acknowledge(l.Stats().LastSeq)
				}
				buf := w.Buffer() // nil at the end of the window
				for i := range buf {
					buf[i] = '!'
				}
				w.Commit(len(buf), noTime)
			}
			for _, e := range events {
				if !bytes.Equal(e.Data, bytes.Repeat([]byte{byte(e.Seq)}, 100)) {
					t.Errorf("the data of event %d was overwritten", e.Seq)
				}
			}
		})
	}
}

func TestBlocks_UsedAgain_WithCursorsThatBorrow(t *testing.T) {
	for name, borrow := range map[string]func(*Owner){"until the next call": (*Owner).Borrow, "until acknowledged": (*Owner).BorrowUntilAcknowledged} {
		t.Run(name, func(t *testing.T) {
			l := New(Limits{})
			w := l.Writer(Stdout)
			o := must[*Owner](t)(l.Own(0))
			borrow(o)
			seen := map[*byte]bool{}
			for range 1000 {
				buf := w.Buffer()
				seen[&buf[0]] = true
				w.Commit(len(buf), noTime)
				b, _, _ := o.TryNext(0)
				_ = o.Acknowledge(b.Events[len(b.Events)-1].Seq)
			}
			if most := l.Limits().MaxHeldBytes(1, 1) / maxBlockBytes; len(seen) > most {
				t.Errorf("%d blocks for 1000 reads, want at most %d", len(seen), most)
			}
			l.AppendExited()
			l.AppendClosed()
			if l.blocks.spare != nil {
				t.Error("a closed log keeps a spare block")
			}
		})
	}
}
