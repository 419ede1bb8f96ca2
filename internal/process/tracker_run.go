package process

import (
	"os"
	"time"
)

// run works until the tracker is idle.
func (t *processTracker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.runDue()
		childSignals, next, idle := t.nextWakeUp()
		if idle {
			return
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-t.wake.C():
		case <-childSignals:
			t.mu.Lock()
			t.scheduleOrphanCheck(t.orphanCheckDelay())
			t.mu.Unlock()
		}
	}
}

// runDue scans once and takes the steps that are due.
func (t *processTracker) runDue() {
	t.mu.Lock()
	now := time.Now()
	due := t.dueJobs(now)
	checkOrphans := t.orphanCheckDue(now)
	t.mu.Unlock()
	if len(due) == 0 && !checkOrphans {
		return
	}
	wasAlive := make([]bool, len(due))
	for i, job := range due {
		wasAlive[i] = !job.process.leader.isDead()
	}
	result, err := t.scan()
	for i, job := range due {
		snap := snapshot{wasAlive: wasAlive[i], orphansSeen: result.orphansSeen, scanErr: err, now: time.Now()}
		if err == nil {
			snap.members, snap.ambiguous = result.membersOf(job.process.root)
			snap.inGroup = len(result.cgroups[job.process.root]) > 0
			snap.maybeUnseen, snap.mustKillUnseen = result.unseenOf(job.process.root)
		}
		t.stepJob(job, snap)
	}
	awaitKilled(due...)
	if err != nil {
		t.postponeOrphanCheck(isResourceExhausted(err))
		return
	}
	t.checkOrphans(result)
}

// dueJobs forces the jobs whose deadline has passed, and returns those whose next step is due.
// Called with mu held.
func (t *processTracker) dueJobs(now time.Time) (due []*killJob) {
	for job := range t.jobs {
		if !job.forced && !now.Before(job.deadline) {
			job.force()
		}
		if !job.nextStep.IsZero() && !now.Before(job.nextStep) {
			due = append(due, job)
		}
	}
	return due
}

// orphanCheckDue reports whether orphans have to be checked now. Called with mu held.
func (t *processTracker) orphanCheckDue(now time.Time) bool {
	return !t.orphanCheckAt.IsZero() && !now.Before(t.orphanCheckAt) || t.unownedJob != nil && !now.Before(t.unownedJob.nextStep)
}

// nextWakeUp returns what the goroutine has to wait for: SIGCHLD, unless a check is scheduled
// already, and a time, unless it is zero. If idle is set the goroutine must end: the next wakeUp
// starts a new one.
func (t *processTracker) nextWakeUp() (childSignals <-chan os.Signal, next time.Time, idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isIdle() {
		t.lastScan = nil
	}
	if t.frozen || t.isIdle() {
		t.running = false
		t.ended.Notify()
		return nil, next, true
	}
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for job := range t.jobs {
		consider(job.nextStep)
		if !job.forced {
			consider(job.deadline)
		}
	}
	consider(t.orphanCheckAt)
	if t.unownedJob != nil {
		consider(t.unownedJob.nextStep)
	}
	if t.orphanCheckAt.IsZero() {
		childSignals = t.childSignals
	}
	return childSignals, next, false
}

// stepJob takes a step of a job.
func (t *processTracker) stepJob(job *killJob, snap snapshot) {
	t.mu.Lock()
	snap.forced = job.forced
	job.nextStep = time.Time{} // an earlier step may be requested from now on
	t.mu.Unlock()
	wait, done := job.step(snap)
	_, exited := job.process.Exit()
	t.mu.Lock()
	switch {
	case done:
		delete(t.jobs, job)
	// A graceful job waits for the exit of a running leader, which triggers the next step, once a
	// scan has found its descendants.
	case job.nextStep.IsZero() && (snap.forced || exited || snap.scanErr != nil):
		if !snap.forced {
			wait = max(wait, gracefulPollShare*t.scanCost)
		}
		job.nextStep = time.Now().Add(wait)
	}
	t.mu.Unlock()
	if done {
		job.process.killJobDone(job)
	}
}

// postponeOrphanCheck ends an orphan check for which the processes could not be listed. If the
// failure is temporary the check is repeated.
func (t *processTracker) postponeOrphanCheck(temporary bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orphanCheckAt = time.Time{}
	if t.unownedJob != nil {
		t.unownedJob.nextStep = time.Now().Add(minOrphanCheckDelay)
	}
	if temporary {
		t.scheduleOrphanCheck(t.orphanCheckDelay())
	}
	for _, waiter := range t.waiters {
		close(waiter.done)
	}
	t.waiters = nil
}
