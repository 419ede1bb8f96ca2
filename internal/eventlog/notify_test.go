package eventlog

import (
	"errors"
	"io"
	"testing"
)

func TestHold_FromStart_KeepsWindow(t *testing.T) {
	limits := tight
	limits.Held = true
	l := New(limits)
	w := l.Writer(Stdout)
	if n := flood(w, 1000); n != 64 {
		t.Fatalf("wrote %d bytes, want a window of 64", n)
	}
	if !l.Stats().Held {
		t.Error("Stats does not report that the log is held")
	}
	o := must[*Owner](t)(l.OwnAcknowledged())
	if n, _ := drain(t, o); n != 64 {
		t.Errorf("the first owner received %d bytes", n)
	}
	held := New(limits)
	flood(held.Writer(Stdout), 1000)
	held.Free()
	if n := flood(held.Writer(Stdout), 1000); n != 1000 {
		t.Errorf("wrote %d bytes after Free", n)
	}
}

func TestOwnAcknowledged_LosesAndRepeatsNothing(t *testing.T) {
	l := New(tight)
	l.Append(Stdout, []byte("a"))
	l.Append(Stdout, []byte("b"))
	l.Append(Stdout, []byte("c"))
	first := must[*Owner](t)(l.Own(0))
	if err := first.Acknowledge(2); err != nil {
		t.Fatal(err)
	}
	second := must[*Owner](t)(l.OwnAcknowledged())
	if got := text(tryNext(t, second, 0)); got != "o(c)" {
		t.Errorf("the next owner reads %s", got)
	}
	if _, _, err := first.TryNext(0); !errors.Is(err, ErrReplaced) {
		t.Errorf("the first owner reads %v", err)
	}
}

func TestNotify_CallsOncePerWait(t *testing.T) {
	for name, by := range map[string]func(*Log, *Owner){
		"output":      func(l *Log, _ *Owner) { l.Append(Stdout, []byte("x")) },
		"exit":        func(l *Log, _ *Owner) { l.AppendExited() },
		"replacement": func(l *Log, _ *Owner) { _, _ = l.Own(0) },
		"Release":     func(_ *Log, o *Owner) { o.Release(true) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(tight)
			o := must[*Owner](t)(l.Own(0))
			called, first := 0, 0
			o.Notify(func() { first++ })
			o.Notify(func() { called++ })
			if called != 0 {
				t.Fatal("notified without a reason")
			}
			by(l, o)
			if called != 1 || first != 0 {
				t.Errorf("called %d times, and the replaced function %d times", called, first)
			}
			if _, ok, err := o.TryNext(0); !ok && err == nil {
				t.Error("notified, but there is no result")
			}
			l.Append(Stdout, []byte("y"))
			if called != 1 {
				t.Error("notified again without a new call of Notify")
			}
			o.Notify(func() { called++ })
			if called != 2 {
				t.Error("not notified of available events")
			}
		})
	}
}

func TestNotify_EndOfLog_IsReported(t *testing.T) {
	l := New(tight)
	o := must[*Owner](t)(l.Own(0))
	l.AppendExited()
	l.AppendClosed()
	drain(t, o)
	called := false
	o.Notify(func() { called = true })
	if _, _, err := o.TryNext(0); !called || !errors.Is(err, io.EOF) {
		t.Errorf("notified %v, TryNext = %v", called, err)
	}
}
