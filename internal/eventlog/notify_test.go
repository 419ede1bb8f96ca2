package eventlog

import (
	"errors"
	"io"
	"testing"
)

func TestHeldFromTheBeginning(t *testing.T) {
	limits := tight
	limits.Held = true
	l := New(limits)
	w := l.Writer(Stdout)
	if n := flood(w, 1000); n != 64 {
		t.Fatalf("said %d bytes, want a window of 64", n)
	}
	if !l.Stats().Held {
		t.Error("it does not say so")
	}
	o := must[*Owner](t)(l.OwnAcknowledged())
	if n, _ := drain(t, o); n != 64 {
		t.Errorf("the first owner got %d bytes", n)
	}
	held := New(limits)
	flood(held.Writer(Stdout), 1000)
	held.Free()
	if n := flood(held.Writer(Stdout), 1000); n != 1000 {
		t.Errorf("said %d bytes once it was free", n)
	}
}

func TestOwnAcknowledgedLosesAndRepeatsNothing(t *testing.T) {
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

func TestNotifyTellsOnceForEverythingThatEndsAWait(t *testing.T) {
	for name, by := range map[string]func(*Log, *Owner){
		"output":      func(l *Log, _ *Owner) { l.Append(Stdout, []byte("x")) },
		"exit":        func(l *Log, _ *Owner) { l.AppendExited() },
		"replacement": func(l *Log, _ *Owner) { _, _ = l.Own(0) },
		"Release":     func(_ *Log, o *Owner) { o.Release(true) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(tight)
			o := must[*Owner](t)(l.Own(0))
			told, first := 0, 0
			o.Notify(func() { first++ })
			o.Notify(func() { told++ })
			if told != 0 {
				t.Fatal("told of nothing")
			}
			by(l, o)
			if told != 1 || first != 0 {
				t.Errorf("told %d times, and %d times who was replaced", told, first)
			}
			if _, ok, err := o.TryNext(0); !ok && err == nil {
				t.Error("told, and there is nothing")
			}
			l.Append(Stdout, []byte("y"))
			if told != 1 {
				t.Error("told again without having asked")
			}
			o.Notify(func() { told++ })
			if told != 2 {
				t.Error("not told of what is there already")
			}
		})
	}
}

func TestNotifyTellsOfTheEnd(t *testing.T) {
	l := New(tight)
	o := must[*Owner](t)(l.Own(0))
	l.AppendExited()
	l.AppendClosed()
	drain(t, o)
	told := false
	o.Notify(func() { told = true })
	if _, _, err := o.TryNext(0); !told || !errors.Is(err, io.EOF) {
		t.Errorf("told %v, next is %v", told, err)
	}
}
