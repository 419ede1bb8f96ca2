package process

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/procfs"
)

const (
	// killTimeout bounds a forced kill: processes may hang in the kernel, or this program may not
	// be allowed to kill them.
	killTimeout = 5 * time.Second
	// maxStopRounds is how many rounds of stopping new processes precede a kill. A tree that forks
	// faster than it can be stopped has to be reduced first.
	maxStopRounds = 8
	// uncertaintyTimeout bounds how long a job waits for proof that no process is left while others
	// fork.
	uncertaintyTimeout = 200 * time.Millisecond
	// killWait is how long the jobs of one scan wait together for the processes that they killed.
	killWait = 10 * time.Millisecond
	// minGracefulPoll and maxGracefulPoll bound the interval between scans during a graceful
	// termination.
	minGracefulPoll, maxGracefulPoll = 2 * time.Millisecond, 50 * time.Millisecond
	// gracefulPollShare limits these scans to 1/gracefulPollShare of the time.
	gracefulPollShare = 10
)

// killJob ends the process tree of one process. The goroutine of the tracker takes its steps. The
// last group of fields is guarded by rootTable.mu.
type killJob struct {
	process       *Process      // nil: it kills unowned orphans
	cgroup        *cgroup.Group // nil: there is none
	done          chan struct{}
	result        killResult // valid when done is closed
	pidfds        pidfdSet
	leaderStopped bool               // the leader was sent SIGSTOP before any scan: it has not forked since
	killed        bool               // by the last step
	sentTerm      map[procfs.ID]bool // processes that were sent SIGTERM
	groupSentTerm bool               // the process group was sent SIGTERM
	stopRounds    int
	giveUpAt      time.Time // set when forced
	pause         time.Duration
	// uncertainSince is when no process was found for the first time while some may have been
	// missed.
	uncertainSince time.Time

	forced   bool
	deadline time.Time // when the job becomes forced
	nextStep time.Time // zero: not before the deadline
}

// killResult is the outcome of a kill job.
type killResult struct {
	method   Method
	empty    bool // no process that could be found is left
	verified bool // and no other descendant either
}

// snapshot is the input of a step.
type snapshot struct {
	members        []procfs.Stat // alive, with the leader
	inGroup        bool          // the control group has processes
	ambiguous      bool          // an orphan may be another member
	maybeUnseen    bool          // the scan may have missed a descendant
	mustKillUnseen bool          // that descendant would have to be killed
	orphansSeen    bool          // the scan includes all orphans
	wasAlive       bool          // the leader was alive when the scan began: it may have forked and ended since
	forced         bool
	scanErr        error // why the processes could not be listed; then only wasAlive, forced and now are valid
	now            time.Time
}

// step takes one step. It returns how long to wait before the next one, or that the job is done.
func (j *killJob) step(snap snapshot) (wait time.Duration, done bool) {
	if snap.scanErr != nil {
		return j.stepWithoutScan(snap)
	}
	populated := snap.inGroup
	if len(snap.members) == 0 { // now, not when the scan began
		populated = j.isGroupPopulated()
	}
	empty := len(snap.members) == 0 && !populated
	if empty && !j.mustRescan(snap) {
		j.finish(snap, true)
		return 0, true
	}
	if !snap.forced {
		return j.sendTerm(snap.members), false
	}
	if j.giveUpAt.IsZero() {
		j.giveUpAt = snap.now.Add(killTimeout)
	}
	if snap.now.After(j.giveUpAt) {
		j.killAll(populated) // also those that were only stopped so far
		j.finish(snap, empty)
		return 0, true
	}
	stopped, err := j.pidfds.stopNew(j.unstopped(snap.members), j.group())
	if stopped > 0 && j.stopRounds < maxStopRounds {
		j.stopRounds++
		return 0, false
	}
	j.stopRounds = 0
	j.killAll(populated)
	if empty && (snap.mustKillUnseen || snap.wasAlive) && err == nil {
		return 0, false // the tree forks faster than it is scanned
	}
	if err != nil || stopped == 0 && len(snap.members) == 0 {
		j.pause = min(max(2*j.pause, time.Millisecond), killWait)
	}
	return j.pause, false
}

// stepWithoutScan takes a step when processes cannot be listed. It signals the process group and
// the control group, and never verifies the result. If the failure is temporary it repeats this
// until killTimeout, so that a later scan can find processes outside of both groups.
func (j *killJob) stepWithoutScan(snap snapshot) (wait time.Duration, done bool) {
	temporary := isResourceExhausted(snap.scanErr)
	_, exited := j.process.Exit()
	if !snap.forced {
		remaining := !exited || j.isGroupPopulated()
		return j.sendTerm(nil), !remaining && !temporary
	}
	if j.giveUpAt.IsZero() {
		j.giveUpAt = snap.now.Add(killTimeout)
	}
	j.killAll(j.cgroup != nil)
	j.noteMethod(MethodProcessGroup)
	j.pause = min(max(2*j.pause, time.Millisecond), maxGracefulPoll)
	return j.pause, !temporary || snap.now.After(j.giveUpAt)
}

// mustRescan reports whether to scan again although no process was found.
func (j *killJob) mustRescan(snap snapshot) bool {
	switch {
	case !snap.orphansSeen || !snap.maybeUnseen && !snap.wasAlive:
		return false
	case snap.mustKillUnseen || snap.wasAlive:
		return true
	case j.uncertainSince.IsZero():
		j.uncertainSince = snap.now
	}
	return snap.now.Sub(j.uncertainSince) < uncertaintyTimeout
}

// sendTerm sends SIGTERM to the group and to the members outside of it, once to each.
func (j *killJob) sendTerm(members []procfs.Stat) time.Duration {
	j.pause = min(max(2*j.pause, minGracefulPoll), maxGracefulPoll)
	first := !j.groupSentTerm
	j.groupSentTerm = true
	for _, p := range members {
		if j.sentTerm[p.ID()] {
			continue
		}
		j.sentTerm[p.ID()] = true
		switch inGroup := p.Group == j.group(); {
		case inGroup && first:
			j.noteMethod(MethodProcessGroup) // the whole group is signalled below
		case !signalVerified(p, unix.SIGTERM, unix.SIGCONT):
		case inGroup:
			j.noteMethod(MethodProcessGroup)
		default:
			j.noteMethod(MethodDescendants)
		}
	}
	if first { // last: members outside of the group may be recognisable only by a parent inside
		j.signalGroup(unix.SIGTERM, unix.SIGCONT)
	}
	return j.pause
}

func (j *killJob) noteMethod(m Method) { j.result.method = max(j.result.method, m) }

// isGroupPopulated reports whether there is a control group that has processes.
func (j *killJob) isGroupPopulated() bool { return j.cgroup != nil && j.cgroup.Populated() }

// unstopped returns the members without a leader that was stopped before: signals to the process group
// reach it.
func (j *killJob) unstopped(members []procfs.Stat) []procfs.Stat {
	if !j.leaderStopped {
		return members
	}
	return slices.DeleteFunc(slices.Clone(members), func(p procfs.Stat) bool { return p.PID == j.group() })
}

// killAll sends SIGKILL to all known processes and both groups. awaitKilled waits for their end.
func (j *killJob) killAll(populated bool) {
	j.killed = true
	if len(j.pidfds.fds) > 0 {
		j.noteMethod(MethodProcessGroup)
	}
	if j.pidfds.outsideGroup {
		j.noteMethod(MethodDescendants)
	}
	j.pidfds.kill()
	j.signalGroup(unix.SIGKILL)
	if populated && j.cgroup.Kill() {
		j.noteMethod(MethodCgroup)
	}
}

// awaitKilled waits up to killWait for the processes that the last steps of jobs have killed, which die at
// the same time.
func awaitKilled(jobs ...*killJob) {
	deadline := time.Now().Add(killWait)
	for _, j := range jobs {
		if !j.killed {
			continue
		}
		j.killed = false
		if j.leaderStopped {
			j.process.leader.waitDead(time.Until(deadline))
		}
		j.pidfds.removeDead(deadline)
	}
}

func (j *killJob) finish(snap snapshot, empty bool) {
	j.pidfds.close()
	j.result.empty = empty
	j.result.verified = empty && snap.orphansSeen && !snap.ambiguous && !snap.maybeUnseen && !snap.wasAlive
}

// group returns the ID of the process group of the leader, or 0.
func (j *killJob) group() int {
	if j.process == nil {
		return 0
	}
	return j.process.leader.pid
}

// signalGroup signals the process group, also members forked a moment ago.
func (j *killJob) signalGroup(signals ...syscall.Signal) {
	if j.process == nil {
		return
	}
	j.process.mu.Lock()
	defer j.process.mu.Unlock()
	for _, sig := range signals {
		_ = j.process.leader.signalGroup(sig)
	}
}

// force is called with rootTable.mu held.
func (j *killJob) force() {
	j.forced, j.nextStep = true, pastDeadline
	if j.process != nil {
		j.process.root.state.ending = true
	}
}
