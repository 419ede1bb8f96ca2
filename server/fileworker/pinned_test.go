package fileworker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/server/fileworker"
)

// receive has a worker be sent something.
func (f *fixture) receive(lease *fileworker.Lease, name string, what fileworker.State, while time.Duration) {
	f.t.Helper()
	if err := lease.Pin(name, func() (func(), error) { return func() {}, nil }); err != nil {
		f.t.Fatal(err)
	}
	lease.Unpin(name, what, while)
}

// having tells how many workers have something by a name.
func having(set *fileworker.Set, name string) int {
	leases := set.Pinned(name)
	for _, l := range leases {
		l.Release()
	}
	return len(leases)
}

func TestWorkerStaysForWhatItHas(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, Complete: 2})
	set := f.newSet()
	lease := f.use(set, "a")
	f.receive(lease, "complete", fileworker.Complete, time.Hour)
	f.receive(lease, "gone", fileworker.Gone, time.Hour)
	f.receive(lease, "unfinished", fileworker.Unfinished, time.Hour)
	if err := lease.Pin("unfinished", func() (func(), error) { return func() {}, nil }); err != nil { // goes on
		t.Fatal(err)
	}
	lease.Release()
	if _, err := set.Use(f.ctx, "b", f.starts(workerVerb)); err == nil {
		t.Error("it gave way")
	} else if limit, is := errors.AsType[*fileworker.LimitError](err); !is || limit.Limit != 1 {
		t.Error(err)
	}
	for name, want := range map[string]int{"unfinished": 1, "complete": 1, "gone": 0, "never": 0} {
		if n := having(set, name); n != want {
			t.Errorf("%s: %d", name, n)
		}
	}
	lease.Unpin("unfinished", fileworker.Unfinished, time.Hour)
	f.use(set, "b").Release()
	if having(set, "complete")+having(set, "unfinished") > 0 {
		t.Error("it stays for what no stream brings")
	}
	set.Close()
	f.receive(lease, "late", fileworker.Unfinished, time.Hour)
	if _, err := set.Use(f.ctx, "c", f.starts(workerVerb)); !errors.Is(err, fileworker.ErrClosed) {
		t.Error(err)
	}
}

// What is unfinished counts once, however many streams bring it, until none does or it is gone with its worker.
func TestWhatIsUnfinishedIsCounted(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, Complete: 2})
	set, counted := f.newSet(), 0
	lease := f.use(set, "a")
	errMany := errors.New("too many")
	receive := func(name string) error {
		return lease.Pin(name, func() (func(), error) {
			if counted == 2 {
				return nil, errMany
			}
			counted++
			return func() { counted-- }, nil
		})
	}
	expect := func(what string, want int) {
		t.Helper()
		if counted != want {
			t.Errorf("%s: %d are counted, want %d", what, counted, want)
		}
	}
	for _, name := range []string{"a", "a", "b"} {
		if err := receive(name); err != nil {
			t.Fatal(err)
		}
	}
	expect("two that come", 2)
	if err := receive("c"); !errors.Is(err, errMany) || having(set, "c") > 0 {
		t.Errorf("a third is refused with %v", err)
	}
	lease.Unpin("a", fileworker.Gone, time.Hour)
	expect("one whose other stream goes on", 2)
	lease.Unpin("a", fileworker.Unfinished, time.Hour)
	expect("one that may go on", 1)
	if err := receive("a"); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
	lease.Unpin("a", fileworker.Complete, time.Hour)
	expect("one that is complete", 1)
	if err := receive("a"); err != nil {
		t.Errorf("it is not begun anew: %v", err)
	}
	expect("one that is begun anew", 2)
	lease.Unpin("a", fileworker.Gone, time.Hour)
	lease.Unpin("b", fileworker.Unfinished, time.Hour)
	expect("one that is gone, and one that may go on", 0)
	for i := range 3 {
		name := fmt.Sprint("complete ", i)
		if err := receive(name); err != nil {
			t.Fatal(err)
		}
		lease.Unpin(name, fileworker.Complete, time.Hour)
	}
	for i, want := range []int{0, 1, 1} {
		if n := having(set, fmt.Sprint("complete ", i)); n != want {
			t.Errorf("%d workers have what was completed as number %d", n, i)
		}
	}
	set.Close()
	expect("those of a worker that was ended", 0)
	lease.Unpin("b", fileworker.Unfinished, time.Hour)
	expect("what comes late", 0)
}
