package process

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sweepPatience bounds how long a kill goes on: processes may hang in the system, or not be ours to kill.
	sweepPatience = 5 * time.Second
	// maxStops is how often in a row those who are found anew are stopped before all are killed. What forks faster
	// than it can be stopped has to be decimated first.
	maxStops = 8
	// riddlePatience bounds how long it is waited for to know that nobody is left when others are forking.
	riddlePatience = 200 * time.Millisecond
	// killWait is how long the killed are waited for before somebody else's turn.
	killWait = 10 * time.Millisecond
	// The first and the longest time between two looks at what a graceful termination has left.
	firstGracefulLook, lastGracefulLook = 2 * time.Millisecond, 50 * time.Millisecond
	// gracefulShare bounds the time that is spent on these looks, as one part of so many.
	gracefulShare = 10
)

// sweep ends a process with all that descends from it. The sweeper's goroutine takes its steps; the fields of the
// second half are guarded by sweeper.mu.
type sweep struct {
	process *Process // nil: it is for strays, who are nobody's
	cgroup  *cgroup  // nil: it has none
	done    chan struct{}
	result  sweepResult // when done is closed
	grip    grip
	asked   map[identity]bool // who got SIGTERM from a step
	told    bool              // the process group got it
	stops   int
	giveUp  time.Time // when forced
	pause   time.Duration
	// pondering is since when nobody was seen, and it is not known whether there is nobody.
	pondering time.Time

	forced   bool
	deadline time.Time // when it is forced if it is not yet
	next     time.Time // when to take the next step; zero: not before the deadline
}

// sweepResult is what a sweep came to.
type sweepResult struct {
	method   Method
	empty    bool // nobody who could be found is left
	verified bool // and nobody else either
}

// scene is what a step gets to see.
type scene struct {
	members  []procStat // alive, with the process itself
	doubtful bool       // there is an orphan that may be another one
	riddle   bool       // there may be a descendant that was not seen
	unseen   bool       // it would have to be killed
	judged   bool       // all orphans that there are were seen
	lived    bool       // the process itself had not ended before they were listed: it may have forked and ended since
	forced   bool
	now      time.Time
}

// step takes one step. It returns how long to wait before the next, or that there is none.
func (w *sweep) step(s scene) (wait time.Duration, done bool) {
	populated := w.cgroup != nil && w.cgroup.populated()
	gone := len(s.members) == 0 && !populated
	if gone && !w.ponders(s) {
		w.finish(s, true)
		return 0, true
	}
	if !s.forced {
		return w.ask(s.members), false
	}
	if w.giveUp.IsZero() {
		w.giveUp = s.now.Add(sweepPatience)
	}
	if s.now.After(w.giveUp) {
		w.strike(populated) // those, too, who were only stopped yet
		w.finish(s, gone)
		return 0, true
	}
	fresh, err := w.grip.take(s.members, w.group())
	if fresh > 0 && w.stops < maxStops {
		w.stops++
		return 0, false
	}
	w.stops = 0
	w.strike(populated)
	if gone && (s.unseen || s.lived) && err == nil {
		return 0, false // somebody forks faster than we look
	}
	if err != nil || fresh == 0 && len(s.members) == 0 {
		w.pause = min(max(2*w.pause, time.Millisecond), killWait)
	}
	return w.pause, false
}

// stepBlindly takes a step when nobody can be seen. It signals the process group and the control group, and is never
// sure of the end. If that may pass it does so until it gives up, so that those outside of both are found after all.
func (w *sweep) stepBlindly(forced, forNow bool, now time.Time) (wait time.Duration, done bool) {
	_, exited := w.process.Exit()
	if !forced {
		left := !exited || w.cgroup != nil && w.cgroup.populated()
		return w.ask(nil), !left && !forNow
	}
	if w.giveUp.IsZero() {
		w.giveUp = now.Add(sweepPatience)
	}
	w.strike(w.cgroup != nil)
	w.used(MethodProcessGroup)
	w.pause = min(max(2*w.pause, time.Millisecond), lastGracefulLook)
	return w.pause, !forNow || now.After(w.giveUp)
}

// ponders tells whether to look again although nobody was seen.
func (w *sweep) ponders(s scene) bool {
	switch {
	case !s.judged || !s.riddle && !s.lived:
		return false
	case s.unseen || s.lived:
		return true
	case w.pondering.IsZero():
		w.pondering = s.now
	}
	return s.now.Sub(w.pondering) < riddlePatience
}

// ask sends SIGTERM to the group and to those outside of it, each once.
func (w *sweep) ask(members []procStat) time.Duration {
	w.pause = min(max(2*w.pause, firstGracefulLook), lastGracefulLook)
	first := !w.told
	w.told = true
	for _, p := range members {
		if w.asked[p.identity()] {
			continue
		}
		w.asked[p.identity()] = true
		switch inGroup := p.group == w.group(); {
		case inGroup && first:
			w.used(MethodProcessGroup) // see below
		case !signalExactly(p, unix.SIGTERM, unix.SIGCONT):
		case inGroup:
			w.used(MethodProcessGroup)
		default:
			w.used(MethodDescendants)
		}
	}
	if first { // after those outside, who may have no other parent to be known by
		w.process.signalGroupUnlessGone(unix.SIGTERM, unix.SIGCONT)
	}
	return w.pause
}

func (w *sweep) used(m Method) { w.result.method = max(w.result.method, m) }

// strike kills everybody there is, and waits a moment for their end.
func (w *sweep) strike(populated bool) {
	if len(w.grip.held) > 0 {
		w.used(MethodProcessGroup)
	}
	if w.grip.outside {
		w.used(MethodDescendants)
	}
	w.grip.kill()
	if w.process != nil {
		w.process.signalGroupUnlessGone(unix.SIGKILL)
	}
	if populated && w.cgroup.kill() {
		w.used(MethodCgroup)
	}
	w.grip.release(killWait)
}

func (w *sweep) finish(s scene, empty bool) {
	w.grip.release(0)
	w.result.empty = empty
	w.result.verified = empty && s.judged && !s.doubtful && !s.riddle && !s.lived
}

// group is the process group that the process was started in.
func (w *sweep) group() int {
	if w.process == nil {
		return 0
	}
	return w.process.pid
}

// signalGroupUnlessGone signals the process group, also those in it who were forked a moment ago.
func (p *Process) signalGroupUnlessGone(signals ...syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sig := range signals {
		_ = p.signalGroupLocked(sig)
	}
}
