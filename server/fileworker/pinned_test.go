package fileworker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/server/fileworker"
)

// receive pins and unpins a worker by a name.
func (f *fixture) receive(lease *fileworker.Lease, name string, what fileworker.State, while time.Duration) {
	f.t.Helper()
	if err := lease.Pin(name, func() (func(), error) { return func() {}, nil }); err != nil {
		f.t.Fatal(err)
	}
	lease.Unpin(name, what, while)
}

// countPinned returns how many workers are pinned by a name.
func countPinned(set *fileworker.Set, name string) int {
	leases := set.Pinned(name)
	for _, l := range leases {
		l.Release()
	}
	return len(leases)
}

func TestPin_PreventsEviction(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, Complete: 2})
	set := f.newSet()
	lease := f.use(set, "a")
	f.receive(lease, "complete", fileworker.Complete, time.Hour)
	f.receive(lease, "gone", fileworker.Gone, time.Hour)
	f.receive(lease, "unfinished", fileworker.Unfinished, time.Hour)
	if err := lease.Pin("unfinished", func() (func(), error) { return func() {}, nil }); err != nil { // the upload is resumed
		t.Fatal(err)
	}
	lease.Release()
	if _, err := set.Use(f.ctx, "b", f.starts(workerVerb)); err == nil {
		t.Error("a pinned worker was evicted")
	} else if limit, is := errors.AsType[*fileworker.LimitError](err); !is || limit.Limit != 1 {
		t.Error(err)
	}
	for name, want := range map[string]int{"unfinished": 1, "complete": 1, "gone": 0, "never": 0} {
		if n := countPinned(set, name); n != want {
			t.Errorf("%s: %d", name, n)
		}
	}
	lease.Unpin("unfinished", fileworker.Unfinished, time.Hour)
	f.use(set, "b").Release()
	if countPinned(set, "complete")+countPinned(set, "unfinished") > 0 {
		t.Error("uploads without a stream prevent the eviction")
	}
	set.Close()
	f.receive(lease, "late", fileworker.Unfinished, time.Hour)
	if _, err := set.Use(f.ctx, "c", f.starts(workerVerb)); !errors.Is(err, fileworker.ErrClosed) {
		t.Error(err)
	}
}

// An unfinished upload counts once, independent of its streams, until it has no stream or
// its worker has ended.
func TestPin_Unfinished_CountsOnce(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute, Complete: 2})
	set, counted := f.newSet(), 0
	lease := f.use(set, "a")
	errTooMany := errors.New("too many")
	receive := func(name string) error {
		return lease.Pin(name, func() (func(), error) {
			if counted == 2 {
				return nil, errTooMany
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
	expect("two uploads", 2)
	if err := receive("c"); !errors.Is(err, errTooMany) || countPinned(set, "c") > 0 {
		t.Errorf("a third fails with %v", err)
	}
	lease.Unpin("a", fileworker.Gone, time.Hour)
	expect("one with another stream", 2)
	lease.Unpin("a", fileworker.Unfinished, time.Hour)
	expect("one that can be resumed", 1)
	if err := receive("a"); err != nil {
		t.Errorf("resuming fails: %v", err)
	}
	lease.Unpin("a", fileworker.Complete, time.Hour)
	expect("a complete one", 1)
	if err := receive("a"); err != nil {
		t.Errorf("beginning it again fails: %v", err)
	}
	expect("one that is begun again", 2)
	lease.Unpin("a", fileworker.Gone, time.Hour)
	lease.Unpin("b", fileworker.Unfinished, time.Hour)
	expect("one that is gone, and one that can be resumed", 0)
	for i := range 3 {
		name := fmt.Sprint("complete ", i)
		if err := receive(name); err != nil {
			t.Fatal(err)
		}
		lease.Unpin(name, fileworker.Complete, time.Hour)
	}
	for i, want := range []int{0, 1, 1} {
		if n := countPinned(set, fmt.Sprint("complete ", i)); n != want {
			t.Errorf("%d workers have completed upload %d", n, i)
		}
	}
	set.Close()
	expect("uploads of a worker that has ended", 0)
	lease.Unpin("b", fileworker.Unfinished, time.Hour)
	expect("a late unpin", 0)
}
