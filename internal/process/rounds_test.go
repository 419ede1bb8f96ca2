package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
)

// heapAlloc is what is reachable.
func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// round starts a process with a descendant outside of its session and ends it in one of several ways.
func round(ctx context.Context, t *testing.T, s *Supervisor, n int) {
	spec := shell("setsid sleep 1000 >/dev/null 2>&1 & exec sleep 1000")
	switch n % 4 {
	case 1:
		spec = shell("(setsid sleep 1000 >/dev/null 2>&1 &); exec sleep 1000") // an orphan
	case 2:
		spec = shell("sleep 1000 >/dev/null 2>&1 & exit 3") // ended by its close
	}
	p, err := s.Start(ctx, spec)
	if err != nil {
		t.Error(err)
		return
	}
	if n%4 == 2 {
		exit(t, p)
	}
	result, err := p.Terminate(ctx, Termination{Graceful: n%8 == 3})
	if err != nil || result.Exit.Cause == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	exit(t, p)
}

// TestRoundsOfKillingLeaveNothing starts and kills over and over. At its end nothing may be left, of no kind.
func TestRoundsOfKillingLeaveNothing(t *testing.T) {
	rounds := 2_000
	switch {
	case testing.Short():
		rounds = 400
	case os.Getenv("EXECWIRE_SOAK") != "":
		rounds = 10_000
	}
	leakcheck.Check(t)
	c := withCgroups(t)
	t.Cleanup(func() { wantNoChildren(t) })
	s := newSupervisor(t, Config{Cgroups: c, AdoptOrphans: true})
	const workers = 8
	ctx, cancel := context.WithTimeoutCause(context.Background(), 3*patience, errors.New("test took too long"))
	defer cancel()
	play := func(rounds int) {
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for n := worker; n < rounds; n += workers {
					round(ctx, t, s, n)
				}
			})
		}
		all.Wait()
		if err := children.settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	play(rounds / 10) // whatever grows once has grown
	before, goroutines, descriptors := heapAlloc(), runtime.NumGoroutine(), openDescriptors(t)
	play(rounds)
	if grown := int64(heapAlloc()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes are left", grown)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, before there were %d", n, goroutines)
	}
	if n := openDescriptors(t); n > descriptors {
		t.Errorf("%d descriptors, before there were %d", n, descriptors)
	}
	if n := len(directories(t, c)); n > maxFreeCgroups {
		t.Errorf("%d control groups", n)
	}
	wantNoChildren(t)
	children.mu.Lock()
	defer children.mu.Unlock()
	if len(children.kin)+len(children.leaders)+len(children.sweeps)+len(children.forks)+len(children.left) > 0 {
		t.Errorf("the family remembers %d, %d, %d, %d and %d", len(children.kin), len(children.leaders),
			len(children.sweeps), len(children.forks), len(children.left))
	}
}
