package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Termination says how to end a process.
type Termination struct {
	// Graceful sends SIGTERM to the group and to every descendant outside of it (and SIGCONT, so that a stopped process
	// takes note), and kills whoever is left after Timeout, or when the process is about to close. Otherwise all are
	// killed at once.
	Graceful bool
	// Timeout is for Graceful only. 0: DefaultGrace.
	Timeout time.Duration
	// Cause goes into the exit record, unless the process exited before or was being ended for another cause. 0:
	// CauseTerminated.
	Cause Cause
}

// DefaultGrace is how long a graceful termination waits if it does not say.
const DefaultGrace = 10 * time.Second

// Method is the rung of the kill ladder that was used.
type Method uint8

// The rungs, from the weakest to the strongest.
const (
	MethodNone         Method = iota // nothing was left to kill
	MethodProcessGroup               // signals to members of the process group, and nobody else was found
	MethodDescendants                // signals to descendants outside of the process group, too
	MethodCgroup                     // the kernel killed the control group
)

func (m Method) String() string {
	names := [...]string{"none", "process group", "descendants", "cgroup"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}

// KillMethod is the strongest rung that works for processes of this supervisor.
func (s *Supervisor) KillMethod() Method {
	if s.config.Cgroups != nil {
		return MethodCgroup
	}
	if _, err := readStat(os.Getpid()); err != nil {
		return MethodProcessGroup
	}
	return MethodDescendants
}

// TerminateResult says what Terminate did.
type TerminateResult struct {
	WasRunning bool   // the process had not exited when the call came
	Method     Method // the strongest that was used
	// Verified is set if it is known that no descendant is left alive; see the package's comment. It never is without
	// Config.AdoptOrphans.
	Verified bool
	Exit     ExitRecord // of the process; zero if the wait was cut short
}

// Terminate ends the process with all its descendants, and waits for that. It gives up on those who cannot be killed
// after some seconds, but not on the process itself. What it began goes on if ctx ends, whose cause it then returns. Of
// a process that has exited or closed it ends the descendants that are left. It may be called any number of times,
// concurrently and with different modes: the earliest deadline counts. Kinds: PermissionDenied.
func (p *Process) Terminate(ctx context.Context, t Termination) (TerminateResult, error) {
	w, wasRunning, err := p.beginTermination(t)
	result := TerminateResult{WasRunning: wasRunning}
	switch {
	case err != nil:
		return result, err
	case w == nil:
		result.Verified = children.isClear(ctx, p.kin)
		result.Exit, _ = p.Exit()
		return result, nil
	}
	for _, done := range []<-chan struct{}{w.done, p.exited} {
		select {
		case <-done:
		case <-ctx.Done():
			return result, fmt.Errorf("failed to wait for the exit: %w", context.Cause(ctx))
		}
	}
	result.Method, result.Verified = w.result.method, w.result.verified
	result.Exit, _ = p.Exit()
	return result, nil
}

// kill begins a forced termination.
func (p *Process) kill(cause Cause) { _, _, _ = p.beginTermination(Termination{Cause: cause}) }

// beginTermination sends the first signal and begins a sweep, or joins the one under way. Those who exited have none
// if nothing was left to look after.
func (p *Process) beginTermination(t Termination) (w *sweep, wasRunning bool, err error) {
	if t.Cause == 0 {
		t.Cause = CauseTerminated
	}
	if t.Timeout <= 0 {
		t.Timeout = DefaultGrace
	}
	p.mu.Lock() // the exit cannot be noted before the cause is
	defer p.mu.Unlock()
	w = &sweep{forced: !t.Graceful, deadline: time.Now().Add(t.Timeout)}
	if wasRunning = p.state < StateExited && !p.isDead(); wasRunning {
		if err := p.strikeFirst(t); err != nil {
			return nil, wasRunning, err
		}
		if !t.Graceful {
			w.result.method = MethodProcessGroup
		}
	}
	switch {
	case p.letGone:
		return nil, wasRunning, nil
	case p.sweep != nil:
		children.hurry(p.sweep, w.deadline, w.forced)
		return p.sweep, wasRunning, nil
	}
	p.beginSweep(w)
	return w, wasRunning, nil
}

// strikeFirst stops the group of a process that runs and is to be killed, so that it forks no more while its descendants
// are looked for. With a graceful termination it only finds out whether that is permitted: once the process has ended,
// its children are not known any more, so they have to be found before. It notes why the process ends. Called with mu
// held.
func (p *Process) strikeFirst(t Termination) error {
	sig := unix.SIGSTOP
	if t.Graceful {
		sig = 0
	}
	if err := p.signalGroupLocked(sig); err != nil {
		return err
	}
	if p.cause == 0 {
		p.cause = t.Cause
	}
	return nil
}

// isDead tells whether the leader ended, perhaps not yet reaped. Called with mu held.
func (p *Process) isDead() bool {
	dead := true
	_ = p.pidfd.Control(func(fd uintptr) {
		var err error
		_, dead, err = waitChild(fd, true, nil)
		dead = dead || err != nil
	})
	return dead
}

// hasEnded tells whether the leader ended, perhaps not yet reaped or noted.
func (p *Process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state >= StateExited || p.isDead()
}

// beginSweep is called with mu held, when there is none.
func (p *Process) beginSweep(w *sweep) {
	w.process, w.cgroup = p, p.cgroup
	w.done = make(chan struct{})
	w.asked = map[identity]bool{}
	w.next = longAgo
	p.sweep, p.ended = w, true
	p.supervisor.runs()
	children.begin(w)
}

// expire is what the timers of Spec do.
func (p *Process) expire(cause Cause) { p.kill(cause) }
