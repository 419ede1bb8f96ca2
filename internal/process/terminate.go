package process

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Termination says how to end a process.
type Termination struct {
	// Graceful sends SIGTERM to the group (and SIGCONT, so that a stopped process takes note), and SIGKILL to whoever
	// is left after Timeout, or when the process is closed. Otherwise the group gets SIGKILL at once.
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

// The rungs.
const (
	MethodNone         Method = iota // nothing was left to kill
	MethodProcessGroup               // a signal to the process group
)

// TerminateResult says what Terminate did.
type TerminateResult struct {
	WasRunning bool   // the process had not exited when the call came
	Method     Method // the strongest that was used
	// Verified is set if it is known that no descendant is left alive. It never is on the rung of the process group:
	// what left the group cannot be seen.
	Verified bool
	Exit     ExitRecord // of the process; zero if the wait was cut short
}

// Terminate ends the process group and waits for the process itself to exit. What it began goes on if ctx ends, whose
// cause it then returns. Of a process that has exited it ends the members of the group that are left, until closed.
// It may be called any number of times, concurrently and with different modes: the earliest deadline counts.
func (p *Process) Terminate(ctx context.Context, t Termination) (TerminateResult, error) {
	wasRunning, err := p.beginTermination(t)
	result := TerminateResult{WasRunning: wasRunning}
	switch {
	case err == nil:
		result.Method = MethodProcessGroup
	case KindOf(err) != AlreadyExited:
		return result, err
	}
	select {
	case <-p.exited:
		result.Exit, _ = p.Exit()
		return result, nil
	case <-ctx.Done():
		return result, fmt.Errorf("failed to wait for the exit: %w", context.Cause(ctx))
	}
}

func (p *Process) beginTermination(t Termination) (wasRunning bool, err error) {
	if t.Cause == 0 {
		t.Cause = CauseTerminated
	}
	if !t.Graceful {
		return p.end(unix.SIGKILL, t.Cause)
	}
	if t.Timeout <= 0 {
		t.Timeout = DefaultGrace
	}
	if wasRunning, err = p.end(unix.SIGTERM, t.Cause); err != nil {
		return wasRunning, err
	}
	p.killAfter(t.Timeout)
	_ = p.signalGroup(unix.SIGCONT)
	return wasRunning, nil
}

// end signals the group and notes why, if p was still running and the signal was sent.
func (p *Process) end(sig syscall.Signal, cause Cause) (wasRunning bool, err error) {
	p.mu.Lock() // the exit cannot be noted before the cause is
	defer p.mu.Unlock()
	wasRunning = p.state < StateExited && !p.isDead()
	err = p.signalGroupLocked(sig)
	if wasRunning && err == nil && p.cause == 0 {
		p.cause = cause
	}
	return wasRunning, err
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

// killAfter makes SIGKILL follow at the earliest deadline asked for.
func (p *Process) killAfter(timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == StateClosed {
		return
	}
	deadline := time.Now().Add(timeout)
	switch {
	case p.killTimer == nil:
		p.killTimer = time.AfterFunc(timeout, func() { _ = p.signalGroup(unix.SIGKILL) })
	case deadline.Before(p.killAt):
		p.killTimer.Reset(timeout)
	default:
		return
	}
	p.killAt = deadline
}

// expire is what the timers of Spec do.
func (p *Process) expire(cause Cause) {
	_, _ = p.end(unix.SIGKILL, cause)
}
