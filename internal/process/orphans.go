package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/notify"
)

const (
	// minOrphanCheckDelay is the shortest time from a change to an orphan check: changes come in
	// bursts.
	minOrphanCheckDelay = 100 * time.Millisecond
	// orphanCheckShare limits orphan checks to 1/orphanCheckShare of the time.
	orphanCheckShare = 50
)

// orphanCheckDelay is called with mu held.
func (t *processTracker) orphanCheckDelay() time.Duration {
	return max(minOrphanCheckDelay, orphanCheckShare*t.scanCost)
}

// orphanWaiter waits for a scan later than afterScan, and for the end of the unowned orphans that
// it found.
type orphanWaiter struct {
	afterScan uint64
	since     time.Time
	done      chan struct{}
}

// ownSession returns the session ID of this program, or 0. It is not for signalling.
func ownSession() int {
	session, err := unix.Getsid(0)
	if err != nil {
		return 0
	}
	return session
}

// startAdopting makes this program the parent of orphaned descendants, and subscribes to SIGCHLD.
func (t *processTracker) startAdopting() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.adopters == 0 {
		var previous int32
		_ = unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&previous)), 0, 0, 0)
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("failed to become a child subreaper: %w", err)
		}
		t.wasSubreaper = previous != 0
		t.childSignals = make(chan os.Signal, 1) // package os/signal does not block
		signal.Notify(t.childSignals, syscall.SIGCHLD)
	}
	t.adopters++
	t.wakeUp()
	return nil
}

// stopAdopting undoes startAdopting.
func (t *processTracker) stopAdopting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adopters--
	if t.adopters > 0 {
		return
	}
	signal.Stop(t.childSignals)
	t.childSignals = nil
	if !t.wasSubreaper {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
	for root, p := range t.roots {
		if p == nil {
			delete(t.roots, root)
		}
	}
	if t.leftRunning == 0 {
		t.orphanCheckAt = time.Time{}
	}
	t.wakeUp()
}

// waitForOrphans waits until a new scan has covered all orphans and the unowned ones are dead.
func (t *processTracker) waitForOrphans(ctx context.Context) error {
	waiter := orphanWaiter{since: time.Now(), done: make(chan struct{})}
	t.mu.Lock()
	waiter.afterScan = t.scansBegun
	t.waiters = append(t.waiters, waiter)
	t.scheduleOrphanCheck(0)
	t.mu.Unlock()
	return notify.Wait(ctx, waiter.done)
}

// isVerifiedGone reports whether the tracker knows that a forgotten process has no descendants
// left.
func (t *processTracker) isVerifiedGone(ctx context.Context, root *trackedRoot) bool {
	verified, tracked := t.rootStatus(root)
	if !verified && tracked && t.waitForOrphans(ctx) == nil {
		verified, _ = t.rootStatus(root)
	}
	return verified
}

func (t *rootTable) rootStatus(root *trackedRoot) (verified, tracked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, tracked = t.roots[root]
	return root.verifiedGone, tracked
}

// checkOrphans reaps adopted zombies, kills unowned orphans and drops the roots that no longer
// matter.
func (t *processTracker) checkOrphans(result scanResult) {
	for _, p := range result.zombies {
		t.reap(p.PID)
	}
	t.killUnowned(result.attribution)
	t.mu.Lock()
	empty, uncertain := t.dropEmptyRoots(result)
	t.waiters = slices.DeleteFunc(t.waiters, func(waiter orphanWaiter) bool {
		finished := waiter.afterScan < result.number && t.unownedJob == nil && (!uncertain || time.Since(waiter.since) > uncertaintyTimeout)
		if finished {
			close(waiter.done)
		}
		return finished
	})
	switch {
	case uncertain && len(t.waiters) > 0:
		t.scheduleOrphanCheck(killWait)
	case uncertain:
		t.scheduleOrphanCheck(t.orphanCheckDelay())
	}
	t.mu.Unlock()
	for _, p := range empty {
		p.releaseIfEmpty()
	}
}

// dropEmptyRoots drops the roots of forgotten processes that have no descendants left. It returns
// the processes left running that have none, and whether one of either may have descendants that
// the scan missed. A scan that began before a process was left running or forgotten proves
// nothing about it. Called with mu held.
func (t *rootTable) dropEmptyRoots(result scanResult) (empty []*Process, uncertain bool) {
	for root, p := range t.roots {
		maybeUnseen, _ := result.unseenOf(root)
		detachedAt := root.state.detachedAtScan
		uncertain = uncertain || maybeUnseen && detachedAt > 0
		switch {
		case detachedAt == 0 || detachedAt > result.number:
		case maybeUnseen || len(result.members[root]) > 0 || result.isCandidate(root):
		case p == nil:
			root.verifiedGone = result.orphansSeen
			delete(t.roots, root)
		default:
			empty = append(empty, p)
		}
	}
	return empty, uncertain
}

// reap reaps an adopted child, unless a Process has its PID by now, or the last supervisor that
// adopts was closed during the scan: the child may belong to the rest of the program.
func (t *processTracker) reap(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.adopters > 0 && !t.leaders[pid] {
		_ = waitID(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG, nil)
	}
}

// killUnowned takes a step in killing the descendants of processes that are gone.
func (t *processTracker) killUnowned(attributed *attribution) {
	t.mu.Lock()
	active := map[*trackedRoot]bool{}
	for job := range t.jobs {
		active[job.process.root] = true
	}
	found := attributed.unowned(func(root *trackedRoot) bool { return active[root] })
	for root, p := range t.roots {
		if p == nil {
			found = append(found, attributed.members[root]...)
		}
	}
	if t.unownedJob == nil && len(found) > 0 {
		t.unownedJob = &killJob{forced: true}
	}
	job := t.unownedJob
	t.mu.Unlock()
	if job == nil {
		return
	}
	wait, empty := job.step(snapshot{members: found, forced: true, now: time.Now()})
	awaitKilled(job)
	job.nextStep = time.Now().Add(wait)
	if empty {
		t.mu.Lock()
		t.unownedJob = nil
		t.mu.Unlock()
	}
}
