package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
)

// waitExit waits for the end of the leader, with its pidfd in the poller, and moves p to exited.
func (p *Process) waitExit(context.Context) {
	var usage unix.Rusage
	info, err := waitEnd(p.leader.pidfd, &usage)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return // interrupted by Freeze
	}
	record := info.record(p.startedAt, &usage)
	if p.wrapper != nil && p.wrapper.init.PID != 0 {
		record.addNamespaceUsage(p.wrapper.init)
	}
	if err != nil || info.union.pid == 0 {
		p.supervisor.config.Logger.Error("lost a process: it was reaped by other code of this program", "pid", p.leader.pid, "error", err)
		p.mu.Lock()
		p.reap() // its PID may have been reused
		p.mu.Unlock()
		record = ExitRecord{Code: -1, Cause: CauseLost, WallTime: record.WallTime, ExitedAt: record.ExitedAt}
	}
	p.recordExit(record)
	for _, s := range p.streams {
		s.settle()
	}
	close(p.settled)
}

func (p *Process) recordExit(record ExitRecord) {
	if p.stdin != nil {
		p.stdin.abort() // before the exit is known
	}
	p.mu.Lock()
	if record.Cause == 0 && p.cause == 0 && p.spec.isExceededLimit(record, p.wrapper, p.leader.pid) {
		record.Cause = CauseLimit
	}
	record.Cause = cmp.Or(record.Cause, max(p.cause, CauseExited))
	p.exit = record
	p.state = StateExited
	if p.observed {
		p.supervisor.config.Observer.Exited(record.Cause)
	}
	close(p.exited)
	p.advanceState() // the streams may have ended before
	if p.killJob != nil {
		tracker.stepNow(p.killJob)
	}
	p.mu.Unlock()
}

// streamChanged adds to the numbers of streams.
func (p *Process) streamChanged(unsettled, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsettledStreams += unsettled
	p.openStreams += open
	p.advanceState()
}

// advanceState appends the last two events when their conditions hold. Called with mu held after
// each change of these.
func (p *Process) advanceState() {
	if p.state < StateExited {
		return
	}
	if !p.exitedLogged && p.unsettledStreams == 0 {
		p.exitedLogged = true
		p.exit.SandboxDenied = p.sandbox != nil && isLikelyDenial(p.exit, p.log)
		p.log.AppendExited()
	}
	if p.state < StateClosed && p.exitedLogged && p.openStreams == 0 {
		p.tryClose()
	}
}

// tryClose closes p, after its remaining descendants were killed. Called with mu held.
func (p *Process) tryClose() {
	keepDescendants := p.spec.LeaveDescendants && !p.killed
	switch {
	case p.killJob != nil:
		if !p.spec.LeaveDescendants {
			tracker.shortenDeadline(p.killJob, time.Time{}, true)
			p.killingRest = true
		}
		return // killJobDone calls advanceState again
	case !keepDescendants && !p.killingRest && !p.isTreeEmpty():
		p.killingRest = true
		tracker.beginKillJob(p, &killJob{forced: true})
		return
	}
	p.log.AppendClosed()
	p.timeouts.stop()
	p.state = StateClosed
	if keepDescendants && (p.cgroup == nil || p.cgroup.Populated()) {
		if p.cgroup == nil && p.isTreeEmpty() {
			p.leader.close() // before the scan: many short processes would exhaust the descriptors
		}
		// Without a control group only a scan can find that no descendant is left.
		tracker.leaveRunning(p)
	} else {
		p.releaseAll()
	}
	p.setClosed(nil)
	p.terminal.noteClosed()
}

// processTree is what finds a process and its descendants.
type processTree struct {
	leader *leader
	root   *trackedRoot
	cgroup *cgroup.Group // nil: none. Invalid after releaseAll
}

// isTreeEmpty reports whether only the zombie of the leader is left, which it reaps unless the control group
// is populated. It is cheap, and misses orphans outside of the session and the control group.
// Called with mu held.
func (t *processTree) isTreeEmpty() bool {
	if t.cgroup != nil && t.cgroup.Populated() {
		return false
	}
	t.reap()
	if t.leader.isPIDInUse() {
		return false
	}
	tracker.markSessionEmpty(t.root)
	return true
}

// reap reaps the dead leader, which frees its PID. Called with mu held.
func (t *processTree) reap() {
	if t.leader.reaped.Swap(true) {
		return
	}
	tracker.markReaped(t.root)
	t.leader.reap()
}

// releaseAll releases what was needed to find and to kill the descendants of p. Called with mu
// held.
func (p *Process) releaseAll() {
	if p.released {
		return
	}
	p.released = true
	p.reap()
	p.leader.close()
	tracker.forget(p)
	p.supervisor.removeProcess(p) // before its control group is reused: see isConfinedGroup
	if p.cgroup != nil {
		if p.exit.Signal == unix.SIGKILL { // perhaps sent to the whole group
			p.cgroup.MarkDirty()
		}
		p.cgroup.Release()
	}
	if p.sandboxUsage != nil {
		p.supervisor.goTracked(p.sandboxUsage.Release) // it may wait for a file system
	}
}

// releaseIfEmpty is called for a process closed with LeaveDescendants when none of them is left.
func (p *Process) releaseIfEmpty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killJob == nil && (p.cgroup == nil || !p.cgroup.Populated()) {
		p.releaseAll()
	}
}

// killJobDone is called at the end of a kill job.
func (p *Process) killJobDone(job *killJob) {
	if job.result.empty {
		for _, s := range p.streams {
			s.drainAndClose()
		}
	}
	p.mu.Lock()
	p.killJob = nil
	if p.state == StateClosed {
		p.releaseAll()
	} else {
		p.advanceState()
	}
	p.mu.Unlock()
	p.supervisor.config.Observer.Killed(job.result.method, job.result.verified)
	close(job.done)
	p.supervisor.done(oneJob)
}
