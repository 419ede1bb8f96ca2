package client

import (
	"context"
	"errors"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// endTimeout bounds what is done for a process that nobody follows any more.
const endTimeout = 5 * time.Second

// giveUp ends a process that still runs but cannot be followed for a reason of
// this side, or because its server cannot be trusted, and returns err.
func (r *run) giveUp(err error) error {
	if errors.Is(err, ErrInputDiffers) || r.found {
		return err // the process is right, and this run of it wrong
	}
	if r.link.sent() && isOurs(err) {
		r.end(&execwirev1.Termination{})
	}
	return err
}

// isOurs reports whether err is for a reason of this side, or because the
// server cannot be trusted.
func isOurs(err error) bool {
	var input *InputError
	var output *OutputError
	var protocol *ProtocolError
	return errors.As(err, &input) || errors.As(err, &output) || errors.As(err, &protocol)
}

// kill ends the process by force. It may be called while the start is not yet
// answered, and waits for the answer then: a process that is not known yet
// cannot be killed.
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

// end terminates the process by a call of its own, so that no stream has to be
// in a state to carry it. It is best effort: when it fails, the grace ends the
// process. Anybody may call it.
func (r *run) end(termination *execwirev1.Termination) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_, _ = r.client.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId:   r.start.GetProcess().GetSessionId(),
		ProcessId:   r.start.GetProcess().GetProcessId(),
		Termination: termination,
	})
}
