package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/leakcheck"
)

// heapAlloc returns the size of the reachable heap.
func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// killRound starts a process with a descendant outside of its session and ends it in one of several
// ways.
func killRound(ctx context.Context, t *testing.T, s *Supervisor, n int) {
	spec := shell("setsid sleep 1000 >/dev/null 2>&1 & exec sleep 1000")
	switch n % 4 {
	case 1:
		spec = shell("(setsid sleep 1000 >/dev/null 2>&1 &); exec sleep 1000") // an orphan
	case 2:
		spec = shell("sleep 1000 >/dev/null 2>&1 & exit 3") // killed at its close
	}
	p, err := s.Start(ctx, spec)
	if err != nil {
		t.Error(err)
		return
	}
	if n%4 == 2 {
		waitClosed(t, p)
	}
	result, err := p.Terminate(ctx, Termination{Graceful: n%8 == 3})
	if err != nil || result.Exit.Cause == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	waitClosed(t, p)
}

func TestTerminate_ManyTimes_LeaksNothing(t *testing.T) {
	rounds := 2_000
	switch {
	case testing.Short():
		rounds = 80
	case os.Getenv("EXECWIRE_SOAK") != "":
		rounds = 10_000
	}
	leakcheck.Check(t)
	c := withCgroups(t)
	t.Cleanup(func() { wantNoChildren(t) })
	s := newSupervisor(t, Config{Cgroups: c, AdoptOrphans: true})
	const workers = 8
	ctx, cancel := context.WithTimeoutCause(context.Background(), 3*testTimeout, errors.New("test took too long"))
	defer cancel()
	runRounds := func(rounds int) {
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for n := worker; n < rounds; n += workers {
					killRound(ctx, t, s, n)
				}
			})
		}
		all.Wait()
		if err := tracker.waitForOrphans(ctx); err != nil {
			t.Fatal(err)
		}
	}
	runRounds(rounds / 10) // whatever grows once has grown
	before, goroutines, descriptors := heapAlloc(), runtime.NumGoroutine(), openDescriptors(t)
	runRounds(rounds)
	if grown := int64(heapAlloc()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes are left", grown)
	}
	// A goroutine is there for a moment after it has reported its end.
	poll(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= goroutines })
	poll(t, "no more descriptors than before", func() bool { return openDescriptors(t) <= descriptors })
	if n := len(directories(t, c)); n > cgroup.MaxFree {
		t.Errorf("%d control groups", n)
	}
	wantNoChildren(t)
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	if len(tracker.roots)+len(tracker.leaders)+len(tracker.jobs)+len(tracker.forks.all)+tracker.leftRunning > 0 {
		t.Errorf("the tracker has %d, %d, %d, %d and %d entries", len(tracker.roots), len(tracker.leaders),
			len(tracker.jobs), len(tracker.forks.all), tracker.leftRunning)
	}
}
