package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// Termination is how to end a process.
type Termination struct {
	// Graceful sends SIGTERM to the group and to every descendant outside of it (with SIGCONT, so
	// that stopped processes receive it), and kills the rest after Timeout, or when the process is
	// about to close. Otherwise all are killed at once.
	Graceful bool
	// Timeout is for Graceful only. 0: DefaultGrace.
	Timeout time.Duration
	// Cause is recorded in the exit record, unless the process has exited or is being ended for
	// another cause. 0: CauseTerminated.
	Cause Cause
}

// DefaultGrace is the default of Termination.Timeout.
const DefaultGrace = 5 * time.Second

// Method is how processes were killed.
type Method uint8

// The methods, from the weakest to the strongest.
const (
	MethodNone         Method = iota // no process was left
	MethodProcessGroup               // signals to members of the process group only
	MethodDescendants                // signals to descendants outside of the process group too
	MethodCgroup                     // the kernel killed the control group
)

// KillMethod returns the strongest method that is available to this supervisor.
func (s *Supervisor) KillMethod() Method {
	if s.config.Cgroups != nil {
		return MethodCgroup
	}
	if _, err := procfs.ReadStat(os.Getpid()); err != nil {
		return MethodProcessGroup
	}
	return MethodDescendants
}

// TerminateResult is the result of Terminate.
type TerminateResult struct {
	WasRunning bool   // the process had not exited when Terminate was called
	Method     Method // the strongest that was used
	// Verified reports that no descendant is alive; see the package comment. It requires
	// Config.AdoptOrphans.
	Verified bool
	Exit     ExitRecord // zero if the wait was aborted
}

// Terminate ends the process tree and waits for that. It gives up after some seconds on descendants
// that cannot be killed, but not on the process itself. If ctx ends it returns its cause, and the
// kill continues. For a process that has exited or closed it ends the remaining descendants. It may
// be called repeatedly, concurrently and with different options: the earliest deadline counts.
// Kinds: PermissionDenied.
func (p *Process) Terminate(ctx context.Context, t Termination) (TerminateResult, error) {
	job, wasRunning, err := p.beginTermination(t)
	result := TerminateResult{WasRunning: wasRunning}
	switch {
	case err != nil:
		return result, err
	case job == nil:
		result.Verified = tracker.isVerifiedGone(ctx, p.root)
		result.Exit, _ = p.Exit()
		return result, nil
	}
	for _, done := range []<-chan struct{}{job.done, p.exited} {
		select {
		case <-done:
		case <-ctx.Done():
			return result, fmt.Errorf("failed to wait for the exit: %w", context.Cause(ctx))
		}
	}
	result.Method, result.Verified = job.result.method, job.result.verified
	result.Exit, _ = p.Exit()
	return result, nil
}

// kill begins a forced termination.
func (p *Process) kill(cause Cause) { _, _, _ = p.beginTermination(Termination{Cause: cause}) }

// beginTermination sends the first signal and begins a kill job, or joins the one under way. It
// returns nil if the process was released.
func (p *Process) beginTermination(t Termination) (job *killJob, wasRunning bool, err error) {
	t.Cause = cmp.Or(t.Cause, CauseTerminated)
	if t.Timeout <= 0 {
		t.Timeout = DefaultGrace
	}
	p.mu.Lock() // the exit must not be recorded before the cause
	defer p.mu.Unlock()
	job = &killJob{forced: !t.Graceful, deadline: time.Now().Add(t.Timeout)}
	if wasRunning = p.state < StateExited && !p.leader.isDead(); wasRunning {
		if err := p.leader.stopOrProbeGroup(t.Graceful); err != nil {
			return nil, wasRunning, err
		}
		p.cause = cmp.Or(p.cause, t.Cause)
		if !t.Graceful {
			job.result.method, job.leaderStopped = MethodProcessGroup, true
		}
	}
	switch {
	case p.released:
		return nil, wasRunning, nil
	case p.killJob != nil:
		tracker.shortenDeadline(p.killJob, job.deadline, job.forced)
		return p.killJob, wasRunning, nil
	}
	tracker.beginKillJob(p, job)
	return job, wasRunning, nil
}

// stopOrProbeGroup stops the group of a running process that is to be killed, so that it cannot
// fork while its descendants are looked for. For a graceful termination it only checks the
// permission, because after the exit the children of the process can no longer be found. Called with
// Process.mu held.
func (l *leader) stopOrProbeGroup(graceful bool) error {
	if graceful {
		return l.signalGroup(0)
	}
	return l.signalGroup(unix.SIGSTOP)
}

// timeouts enforces the timeouts of a Spec. It is guarded by Process.mu.
type timeouts struct {
	wallClock *time.Timer // for Spec.Timeout
	ends      time.Time   // when it fires
	noOutput  *time.Timer // for Spec.NoOutputTimeout
}

// start starts the timers of p, of whose Spec.Timeout a part remains.
func (t *timeouts) start(p *Process, remaining time.Duration) {
	if p.spec.Timeout > 0 {
		t.ends = time.Now().Add(remaining)
		t.wallClock = time.AfterFunc(remaining, func() { p.kill(CauseTimeout) })
	}
	if p.spec.NoOutputTimeout > 0 {
		t.noOutput = time.AfterFunc(p.spec.NoOutputTimeout-time.Since(p.LastOutput()), func() { t.checkOutput(p) })
	}
}

func (t *timeouts) stop() {
	for _, timer := range []*time.Timer{t.wallClock, t.noOutput} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// checkOutput kills the process if it had no output for too long, and otherwise schedules the next
// check.
func (t *timeouts) checkOutput(p *Process) {
	p.mu.Lock() // waits for Thaw
	remaining := p.spec.NoOutputTimeout
	p.mu.Unlock()
	// The order matters: output that is no longer blocked was read before, and LastOutput includes
	// it.
	if !p.OutputBlocked() {
		remaining -= time.Since(p.LastOutput())
	}
	if remaining <= 0 {
		p.kill(CauseNoOutput)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state < StateClosed {
		t.noOutput.Reset(remaining)
	}
}
