package eventlog

import (
	"context"
	"errors"
	"testing"
)

// tight has a window of 64 bytes and retains 256.
var tight = Limits{RetainedBytes: 256, WindowBytes: 64, SnapshotBytes: 16}

func TestWindow_Full_BlocksWriterUntilAcknowledged(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	if n := flood(w, 1000); n != 64 {
		t.Fatalf("wrote %d bytes, want a window of 64", n)
	}
	if n, seq := drain(t, o); n != 64 || seq != l.Stats().LastSeq {
		t.Errorf("the owner received %d bytes up to %d", n, seq)
	}
	if w.Buffer() != nil {
		t.Error("there is a buffer before the acknowledgement")
	}
	for _, wake := range []struct {
		name string
		by   func()
	}{
		{"Acknowledge", func() { o.Acknowledge(l.Stats().LastSeq) }},
		{"Release(false)", func() { o.Release(false) }},
		{"Free", func() { l.Free() }},
		{"replacement", func() { o = must[*Owner](t)(l.Own(l.Stats().LastSeq)) }},
	} {
		t.Run(wake.name, func(t *testing.T) {
			o.Release(false)
			o = must[*Owner](t)(l.Own(l.Stats().LastSeq))
			flood(w, 1000)
			done := make(chan error)
			go func() { done <- w.WaitSpace(testContext(t)) }()
			untilWaiting(t, l, &l.writers, 1)
			wake.by()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if w.Buffer() == nil {
				t.Error("no buffer after WaitSpace")
			}
			w.Commit(0, noTime)
		})
	}
}

func TestWindow_Unacknowledged_IsNotEvicted(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	var got []byte
	var want byte
	for range 100 {
		for buf := w.Buffer(); buf != nil; buf = w.Buffer() {
			for i := range buf {
				buf[i] = want
				want++
			}
			w.Commit(len(buf), noTime)
		}
		b := tryNext(t, o, 1)
		if b.Gap != nil {
			t.Fatalf("gap %+v", b.Gap)
		}
		got = append(got, b.Events[0].Data...)
		o.Acknowledge(b.Events[0].Seq)
	}
	for i, c := range got {
		if c != byte(i) {
			t.Fatalf("byte %d is %d", i, c)
		}
	}
}

func TestWindow_LimitsEvents(t *testing.T) {
	l := New(small)
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	written := 0
	for w.Buffer() != nil {
		w.Commit(1, noTime)
		written++
	}
	if written != 8 {
		t.Errorf("%d events unacknowledged, want 8", written)
	}
	o.Acknowledge(1)
	if w.Buffer() == nil {
		t.Error("no buffer with one event acknowledged")
	}
}

func TestWindow_FloodOfOneStream_LeavesSpaceForTheOther(t *testing.T) {
	l := New(Limits{RetainedBytes: 1024})
	out, errs := l.Writer(Stdout), l.Writer(Stderr)
	o := must[*Owner](t)(l.Own(0))
	least := l.Limits().minSpace() // smaller buffers are not returned
	if n := flood(out, 1<<20); n > 768 || n <= 768-least {
		t.Errorf("stdout wrote %d bytes, want about three quarters of the window", n)
	}
	if n := flood(errs, 1<<20); n != 256 {
		t.Errorf("stderr wrote %d bytes, want the last quarter", n)
	}
	// What stderr frees stays reserved for stderr, also when stdout asks first.
	_, last := drain(t, o)
	o.Acknowledge(last)
	flood(out, 1<<20)
	if n := flood(errs, 1<<20); n != 256 {
		t.Errorf("stderr wrote %d bytes, want the last quarter again", n)
	}
	_, last = drain(t, o)
	o.Acknowledge(last)
	errs.Close()
	if n := flood(out, 1<<20); n <= 1024-least {
		t.Errorf("stdout alone wrote %d bytes, want about the whole window", n)
	}
}

func TestWindow_BuffersInUse_Count(t *testing.T) {
	l := New(tight)
	out, errs := l.Writer(Stdout), l.Writer(Stderr)
	must[*Owner](t)(l.Own(0))
	write(t, errs, "twenty bytes and one")
	waiting := len(errs.Buffer())
	flood(out, 1000)
	if s := l.Stats(); waiting == 0 || s.UnacknowledgedBytes+s.ReservedBytes > 64 {
		t.Errorf("%d bytes unacknowledged and %d reserved in a window of 64", s.UnacknowledgedBytes, s.ReservedBytes)
	}
}

func TestBuffer_IsAtLeastMinSpace(t *testing.T) {
	l := New(Limits{RetainedBytes: 1 << 20, WindowBytes: 64 << 10})
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	w.Buffer()
	w.Commit(100, noTime)
	flood(w, 1<<20)
	o.Acknowledge(1)
	if buf := w.Buffer(); buf != nil {
		t.Errorf("a buffer of %d bytes for 100 acknowledged ones", len(buf))
	}
}

func TestOwner_Replaced_HasNoEffect(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	old := must[*Owner](t)(l.Own(0))
	done := make(chan error)
	go func() {
		_, err := old.Next(testContext(t), 0)
		done <- err
	}()
	untilWaiting(t, l, &l.readers, 1)
	must[*Owner](t)(l.Own(0))
	if err := <-done; err != ErrReplaced {
		t.Errorf("pending Next: %v, want ErrReplaced", err)
	}
	flood(w, 1000)
	if _, _, err := old.TryNext(0); err != ErrReplaced {
		t.Errorf("later TryNext: %v, want ErrReplaced although there are events", err)
	}
	if err := old.Acknowledge(1); err != ErrReplaced {
		t.Errorf("Acknowledge: %v, want ErrReplaced", err)
	}
	old.Release(false)
	if s := l.Stats(); !s.Owned || s.Acknowledged != 0 || w.Buffer() != nil {
		t.Errorf("the replaced owner had an effect: %+v", s)
	}
}

func TestFree_EndsOwnership(t *testing.T) {
	l := New(tight)
	o := must[*Owner](t)(l.Own(0))
	w := l.Writer(Stdout)
	write(t, w, "first")
	l.Free()
	if s := l.Stats(); s.Owned || s.Held || s.UnacknowledgedBytes != 0 {
		t.Errorf("after Free: %+v", s)
	}
	if b := tryNext(t, o, 0); b.Gap != nil || text(b) != "o(first)" {
		t.Errorf("read %+v %s", b.Gap, text(b))
	}
	if err := o.Acknowledge(1); err != nil || l.Stats().Acknowledged != 0 {
		t.Errorf("Acknowledge: %v, %+v", err, l.Stats())
	}
	if n := flood(w, 1000); n != 1000 {
		t.Errorf("wrote %d bytes, want no window", n)
	}
	b := tryNext(t, o, 1)
	if b.Gap == nil || b.Gap.Inexact {
		t.Fatalf("gap %+v", b.Gap)
	}
	rest, _ := drain(t, o)
	if total := b.Gap.DroppedBytes + uint64(len(b.Events[0].Data)+rest); total != 1000 {
		t.Errorf("%d of 1000 bytes were read or are in the gap", total)
	}
	o.Release(true)
	if l.Stats().Held {
		t.Error("Release holds a freed log")
	}
}

func TestFree_NewOwner_ReplacesFreed(t *testing.T) {
	l := New(tight)
	freed := must[*Owner](t)(l.Own(0))
	l.Free()
	must[*Owner](t)(l.Own(0))
	l.Append(Stdout, []byte("x"))
	if _, _, err := freed.TryNext(0); err != ErrReplaced {
		t.Errorf("TryNext: %v, want ErrReplaced", err)
	}
	if err := freed.Acknowledge(1); err != ErrReplaced || l.Stats().Acknowledged != 0 {
		t.Errorf("Acknowledge: %v, %+v", err, l.Stats())
	}
}

func TestHold_KeepsUnacknowledged(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	write(t, w, "taken ")
	write(t, w, "lost on the way ")
	drain(t, o)
	o.Acknowledge(1)
	o.Release(true)
	if s := l.Stats(); s.Owned || !s.Held || s.Acknowledged != 1 {
		t.Errorf("after Release(true): %+v", s)
	}
	space := 64 - len("lost on the way ")
	if n := flood(w, 1000); n > space || n <= space-l.Limits().minSpace() {
		t.Errorf("wrote %d bytes while held, want about %d", n, space)
	}
	again := must[*Owner](t)(l.Own(1))
	if b := tryNext(t, again, 1); b.Gap != nil || text(b) != "o(lost on the way )" {
		t.Errorf("resumed with %+v %s", b.Gap, text(b))
	}
}

func TestOwn_BelowAcknowledged_ResumesThere(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	o := must[*Owner](t)(l.Own(0))
	for range 10 {
		n := flood(w, 1000)
		if n == 0 {
			t.Fatal("the writer is blocked although everything is acknowledged")
		}
		o.Acknowledge(l.Stats().LastSeq)
	}
	o.Release(true)
	again := must[*Owner](t)(l.Own(0))
	if s := l.Stats(); s.UnacknowledgedBytes != 256 {
		t.Errorf("%d bytes unacknowledged, want all retained bytes", s.UnacknowledgedBytes)
	}
	if w.Buffer() != nil {
		t.Error("a buffer beyond the window")
	}
	b := tryNext(t, again, 0)
	if b.Gap == nil || b.Gap.DroppedBytes != 10*64-256 {
		t.Errorf("gap %+v, want the acknowledged events that were evicted", b.Gap)
	}
}

func TestOwn_DuringRead_KeepsReadOutput(t *testing.T) {
	l := New(Limits{RetainedBytes: 256, SnapshotBytes: 16})
	w := l.Writer(Stdout)
	flood(w, 256)
	buf := w.Buffer() // without an owner there is always space
	o := must[*Owner](t)(l.Own(0))
	w.Commit(len(buf), noTime)
	if b := tryNext(t, o, 0); b.Gap != nil {
		t.Errorf("gap %+v", b.Gap)
	}
	if s := l.Stats(); s.RetainedBytes != 256+len(buf) {
		t.Errorf("%d bytes retained", s.RetainedBytes)
	}
	if w.Buffer() != nil {
		t.Error("a second read got a buffer")
	}
}

func TestAcknowledge_IsMonotonic(t *testing.T) {
	l := New(Limits{})
	for range 3 {
		l.Append(Stdout, []byte("x"))
	}
	o := must[*Owner](t)(l.Own(0))
	for _, c := range []struct{ seq, want uint64 }{{2, 2}, {1, 2}, {0, 2}, {2, 2}, {3, 3}} {
		if err := o.Acknowledge(c.seq); err != nil {
			t.Errorf("Acknowledge(%d): %v", c.seq, err)
		}
		if s := l.Stats(); s.Acknowledged != c.want || s.UnacknowledgedEvents != int(3-c.want) {
			t.Errorf("after %d: acknowledged %d, %d events remain", c.seq, s.Acknowledged, s.UnacknowledgedEvents)
		}
	}
}

func TestWaitSpace_ContextEnds_ReturnsCause(t *testing.T) {
	l := New(tight)
	w := l.Writer(Stdout)
	must[*Owner](t)(l.Own(0))
	flood(w, 1000)
	ctx, cancel := context.WithCancelCause(t.Context())
	killed := errors.New("killed")
	done := make(chan error)
	go func() { done <- w.WaitSpace(ctx) }()
	untilWaiting(t, l, &l.writers, 1)
	cancel(killed)
	if err := <-done; err != killed {
		t.Errorf("WaitSpace = %v, want the cause", err)
	}
	l.Free()
	if err := w.WaitSpace(ctx); err != nil {
		t.Errorf("with space: %v", err)
	}
}

func TestObserver_NotReading_DoesNotBlockWriter(t *testing.T) {
	l := New(tight)
	stuck := must[*Reader](t)(l.NewReader(0))
	defer stuck.Close()
	w := l.Writer(Stdout)
	write(t, w, "x")
	tryNext(t, stuck, 0)
	if n := flood(w, 100_000); n != 100_000 {
		t.Errorf("wrote %d bytes with an observer that does not read", n)
	}
}
