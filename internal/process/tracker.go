package process

import (
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/procfs"
)

// processTracker finds the descendants of all processes of this program, runs their kill jobs and
// reaps adopted orphans. There is one for the whole program, not one for each Supervisor, because
// children, SIGCHLD and the subreaper attribute belong to the program. Its goroutine exists only
// while there is something to kill or to adopt.
type processTracker struct {
	forks pendingForks

	rootTable
	// Guarded by mu.
	leftRunning   int // roots in this state
	jobs          map[*killJob]struct{}
	scansBegun    uint64
	orphanCheckAt time.Time // when to look for orphans next; zero: nothing has changed
	waiters       []orphanWaiter
	adopters      int              // supervisors with AdoptOrphans
	childSignals  chan os.Signal   // SIGCHLD; nil: no adopters
	wasSubreaper  bool             // this program was a subreaper before
	running       bool             // the goroutine exists
	frozen        bool             // it must end, whatever there is to do
	ended         notify.Broadcast // it has ended
	wake          notify.Signal

	// Used by the goroutine only.
	lastScan   *attribution // result of the previous scan
	lastScanAt time.Time
	scanCost   time.Duration // duration of the previous scan
	unownedJob *killJob      // kills unowned orphans; nil: there are none
}

// rootTable has the children of this program that are leaders, and the roots of their descendants. All is
// guarded by mu.
type rootTable struct {
	mu          sync.Mutex
	leaders     map[int]bool              // children that a Process reaps; until they are reaped
	scanLeaders map[int]bool              // leaders since the scan under way began; nil: no scan
	roots       map[*trackedRoot]*Process // nil value: the Process was forgotten
}

// tracker is a package variable, because a second one in the program would reap the children of the
// first and take them for orphans. So no caller can construct one.
var tracker = &processTracker{
	forks:     pendingForks{all: map[*pendingFork]struct{}{}},
	rootTable: rootTable{leaders: map[int]bool{}, roots: map[*trackedRoot]*Process{}},
	jobs:      map[*killJob]struct{}{},
	wake:      notify.NewSignal(),
}

// register adds the leader of a process.
func (t *rootTable) register(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaders[p.leader.pid] = true
	if t.scanLeaders != nil {
		t.scanLeaders[p.leader.pid] = true
	}
	t.roots[p.root] = p
}

// markReaped has to be called just before the leader is reaped, which frees its PID.
func (t *rootTable) markReaped(root *trackedRoot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leaders, root.pid)
	root.state.reaped = true
}

// markSessionEmpty records that no process is left in the session of a reaped leader.
func (t *rootTable) markSessionEmpty(root *trackedRoot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	root.state.sessionEmpty = true
}

// forget removes a process. Its root stays until no orphan can belong to it.
func (t *processTracker) forget(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.root.state.leftRunning {
		p.root.state.leftRunning = false
		t.leftRunning--
	}
	if t.adopters == 0 {
		delete(t.roots, p.root)
		if t.leftRunning > 0 {
			t.scheduleOrphanCheck(t.orphanCheckDelay())
		}
		return
	}
	p.root.state.ending = true
	p.root.state.detachedAtScan = t.scansBegun + 1
	t.roots[p.root] = nil
	t.scheduleOrphanCheck(t.orphanCheckDelay())
}

// leaveRunning records that a process has closed whose descendants keep running. The tracker
// releases the process when none is left.
func (t *processTracker) leaveRunning(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leftRunning++
	p.root.state.leftRunning = true
	p.root.state.detachedAtScan = t.scansBegun + 1
	t.scheduleOrphanCheck(t.orphanCheckDelay())
}

// beginKillJob begins a kill job for a process that has none. Called with p.mu held.
func (t *processTracker) beginKillJob(p *Process, job *killJob) {
	job.process, job.cgroup = p, p.cgroup
	job.done = make(chan struct{})
	if job.sentTerm == nil {
		job.sentTerm = map[procfs.ID]bool{}
	}
	job.nextStep = pastDeadline
	p.killJob, p.killed = job, true
	p.supervisor.add(oneJob)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs[job] = struct{}{}
	if job.forced {
		job.force()
	}
	t.wakeUp()
}

// oneJob is how a kill job counts for Supervisor.Close.
var oneJob = counts{running: 1}

// shortenDeadline moves the deadline of a job forward; if forced, to now.
func (t *processTracker) shortenDeadline(job *killJob, deadline time.Time, forced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case job.forced:
		return
	case forced:
		job.force()
	case deadline.Before(job.deadline):
		job.deadline = deadline
	}
	t.wakeUp()
}

// stepNow makes a job take its next step now.
func (t *processTracker) stepNow(job *killJob) {
	t.mu.Lock()
	defer t.mu.Unlock()
	job.nextStep = pastDeadline
	t.wakeUp()
}

// wakeUp makes the goroutine look for work, and starts it if necessary. Called with mu held.
func (t *processTracker) wakeUp() {
	if !t.running && !t.frozen {
		t.running = true
		go t.run()
	}
	t.wake.Set()
}

// scheduleOrphanCheck schedules an orphan check, so that many exits cause one scan. Called with mu
// held.
func (t *processTracker) scheduleOrphanCheck(delay time.Duration) {
	if at := time.Now().Add(delay); t.orphanCheckAt.IsZero() || at.Before(t.orphanCheckAt) {
		t.orphanCheckAt = at
		t.wakeUp()
	}
}

// isIdle reports whether the goroutine may end. Called with mu held.
func (t *processTracker) isIdle() bool {
	return len(t.jobs) == 0 && t.orphanCheckAt.IsZero() && t.unownedJob == nil && t.adopters == 0 && len(t.waiters) == 0
}

// scanResult is the result of a scan.
type scanResult struct {
	*attribution
	number  uint64                 // of the scan, from 1
	cgroups map[*trackedRoot][]int // members of the control groups that were read
	// orphansSeen is set if every orphan is part of the result, which is not certain if orphans are
	// not adopted or /proc hides processes.
	orphansSeen bool
}

// scan lists and attributes all processes.
func (t *processTracker) scan() (scanResult, error) {
	t.mu.Lock()
	startedAt := time.Now()
	t.scansBegun++
	result := scanResult{number: t.scansBegun}
	t.orphanCheckAt = time.Time{} // later changes need another scan
	t.scanLeaders = maps.Clone(t.leaders)
	adopts := t.adopters > 0
	t.mu.Unlock()
	procs, err := procfs.List()
	var forking uint64
	if adopts {
		forking = t.forks.wait()
	}
	result.orphansSeen = adopts && slices.ContainsFunc(procs, func(p procfs.Stat) bool { return p.PID == initPID })

	t.mu.Lock()
	s := processScan{
		procs: procs, self: os.Getpid(), session: ownSession(), adopts: adopts, leaders: t.scanLeaders, forking: forking,
		cgroups: map[*trackedRoot][]int{}, previous: t.lastScan, sessionsFresh: time.Since(t.lastScanAt) < sessionReuseTime, evidence: procfs.ReadEvidence,
	}
	t.scanLeaders = nil
	for root := range t.roots {
		s.roots = append(s.roots, root.snapshot())
	}
	cgroups := t.cgroupsToRead()
	t.mu.Unlock()
	if err != nil {
		return result, err
	}
	for root, c := range cgroups {
		s.cgroups[root] = c.Members()
	}
	result.attribution, result.cgroups = s.attribute(), s.cgroups
	t.lastScan, t.lastScanAt = result.attribution, time.Now()
	empty := s.emptySessions()
	t.mu.Lock()
	for _, root := range empty {
		root.state.sessionEmpty = true
	}
	t.scanCost = t.lastScanAt.Sub(startedAt)
	t.mu.Unlock()
	return result, nil
}

// sessionReuseTime is the age up to which a scan's session IDs are still valid. It is much shorter
// than the time in which PIDs wrap around.
const sessionReuseTime = 100 * time.Millisecond

// cgroupsToRead returns the control groups whose members a scan needs. Called with mu held.
func (t *processTracker) cgroupsToRead() map[*trackedRoot]*cgroup.Group {
	groups := map[*trackedRoot]*cgroup.Group{}
	for job := range t.jobs {
		if job.cgroup != nil {
			groups[job.process.root] = job.cgroup
		}
	}
	for root, p := range t.roots {
		if root.state.leftRunning && p.cgroup != nil {
			groups[root] = p.cgroup
		}
	}
	return groups
}
