package client

import (
	"context"
	"errors"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// startRetryTimeout is for how long after its first sending an unanswered start may be
// repeated. The first may have run a short process, whose record the server keeps for
// 30 seconds (the documented default of closed_process_retention) to recognize a
// repetition. Later, a repetition would run the command again; the difference is a
// margin for transmission.
const startRetryTimeout = 25 * time.Second

// follow runs streams one after the other until the process has closed, for which it
// returns nil, or can no longer be followed.
func (r *run) follow(ctx context.Context) error {
	if err := r.conn.resume(ctx, r.attempt, r.finalError); err != nil {
		return r.cleanUp(err)
	}
	return nil
}

// finalError returns the final error if another stream after err is useless, or nil.
func (r *run) finalError(err error) error {
	e, ok := err.(*Error) // not errors.As: the error of a writer is no answer
	switch {
	case !ok && r.sent() && errors.As(err, new(*ConnectionLostError)):
		return r.lostError(err)
	case !ok || !r.sent():
		return err
	case (r.started || !r.conn.lostAt.IsZero()) && (e.Reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND):
		return r.lostError(err)
	case !r.started && r.conn.lostAt.IsZero() && (e.Reason == execwirev1.ErrorReason_ERROR_REASON_DRAINING ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED):
		return err
	case !r.conn.isTransient(e):
		return err
	case r.conn.graceExpired(r.grace()), r.startRetryExpired():
		return r.lostError(err)
	}
	return nil
}

// grace returns the grace period of the process.
func (r *run) grace() time.Duration {
	if r.options.Grace != nil {
		return *r.options.Grace
	}
	return assumedGrace
}

// sent reports whether the start may have reached the server.
func (r *run) sent() bool { return !r.sentAt.IsZero() }

// startRetryExpired reports whether repeating the unanswered start could run the command
// twice.
func (r *run) startRetryExpired() bool {
	return !r.started && !r.existing && r.sent() && time.Since(r.sentAt) > startRetryTimeout
}

// setConnected records that the process is owned, again or for the first time.
func (r *run) setConnected(process *execwirev1.Process) {
	first := !r.started
	if first { // only then: it is read by others once the start is settled
		r.started, r.pid = true, process.GetPid()
	}
	r.settle()
	r.conn.setConnected()
	if first && r.options.OnStarted != nil {
		r.options.OnStarted(process)
	}
}

func (r *run) lostError(err error) *LostError {
	lost := r.conn.lostError(r.start.GetProcess().GetProcessId(), r.started || r.existing, &r.events, err)
	// Only a server that began after the start was first sent does not know its process.
	lost.Restarted = lost.Restarted || !lost.Started && Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND
	return lost
}

// endTimeout limits the cleanup for a process that is no longer followed.
const endTimeout = 5 * time.Second

// cleanUp ends a process that still runs but cannot be followed for a local reason, or
// because of a protocol error, and returns err.
func (r *run) cleanUp(err error) error {
	if errors.Is(err, ErrInputDiffers) || r.existing {
		return err // the process is valid, this run has the wrong input
	}
	if r.sent() && isLocalError(err) {
		r.end(&execwirev1.Termination{})
	}
	return err
}

// isLocalError reports whether err has a local reason, or is a protocol error.
func isLocalError(err error) bool {
	return errors.As(err, new(*InputError)) || errors.As(err, new(*OutputError)) ||
		errors.As(err, new(*ProtocolError)) || errors.As(err, new(*WindowError))
}

// kill ends the process by force. If the start is not yet answered, it waits for the
// answer: an unknown process cannot be killed.
func (r *run) kill(streams context.Context) {
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-r.settled:
	case <-streams.Done():
	case <-timer.C:
		return
	}
	r.end(&execwirev1.Termination{
		Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}},
	})
}

// end terminates the process by a separate call, independent of the state of any
// stream. It is best effort: if it fails, the grace period ends the process. Any
// goroutine may call it.
func (r *run) end(termination *execwirev1.Termination) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_, _ = r.client.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId:   r.start.GetProcess().GetSessionId(),
		ProcessId:   r.start.GetProcess().GetProcessId(),
		Termination: termination,
	})
}

// releaseExisting detaches from an existing process on a stream of its own, so that it
// is not terminated for the loss of its owner. It is best effort: after a takeover or a
// lost process it does nothing.
func (r *run) releaseExisting() {
	if !r.started {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if !r.conn.lostAt.IsZero() {
		described, err := r.client.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
			SessionId: r.start.GetProcess().GetSessionId(), ProcessId: r.start.GetProcess().GetProcessId()})
		if err != nil || described.GetProcess().GetOwned() {
			return
		}
	}
	stream, err := r.client.processes.RunProcess(ctx)
	if err != nil {
		return
	}
	if _, err := r.open(stream); err != nil || stream.Send(detachment) != nil {
		return
	}
	for err == nil {
		_, err = stream.Recv()
	}
}

// Resume takes over an existing process from its owner, if any, and blocks until it has
// closed, as [Client.Run] does after a lost connection. RunOptions.Process is ignored;
// Stdin is input after what the process already received.
//
// Unlike with Run, the process continues when Resume fails for a local reason or ctx is
// done. A detached process has no owner; one whose connection is lost is terminated
// after its grace period.
func (c *Client) Resume(ctx context.Context, process ProcessRef, options RunOptions) (Exit, error) {
	r, err := newResume(c, process, options)
	if err != nil {
		return Exit{}, err
	}
	return r.run(ctx)
}

// newResume prepares the run of an existing process.
func newResume(c *Client, process ProcessRef, options RunOptions) (*run, error) {
	if process.ProcessID == "" {
		return nil, errors.New("failed to resume: ProcessRef.ProcessID is required")
	}
	options.Process = &execwirev1.StartProcessRequest{SessionId: process.SessionID, ProcessId: process.ProcessID}
	stdin := options.Stdin
	options.Stdin = nil // only the process knows its input
	r, err := newRun(c, options)
	if err != nil {
		return nil, err
	}
	r.existing = true
	r.events.startAfter(process.AfterSeq)
	if r.options.Stdin = stdin; stdin != nil {
		r.openPump(false) // the first answer has the kind of its input
	}
	return r, nil
}
