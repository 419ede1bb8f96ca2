package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Wait waits as WaitProcess does, for longer than the server's longest wait and
// across lost connections, which are resumed for a minute and a quarter. An
// absent request.Wait waits until the condition holds, or cannot any more
// because the process has closed. It does not change request.
//
// Errors are [*Error] when the server refused or was lost for good, [*LostError] when it
// was restarted meanwhile, or wrap the cause of ctx.
func (c *Client) Wait(ctx context.Context, request *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	request = proto.CloneOf(request)
	limited, until := request.GetWait() != nil, time.Now().Add(request.GetWait().AsDuration())
	var connection link
	// A wait is answered when it is over, which is too late to learn who waits.
	described, _ := c.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{SessionId: request.GetSessionId(), ProcessId: request.GetProcessId()})
	instance := described.GetInstanceId()
	for closed := false; ; {
		response, err := c.processes.WaitProcess(ctx, request)
		over := limited && time.Until(until) <= 0
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("failed to wait to the end: %w", context.Cause(ctx))
		case err != nil:
			if err := connection.retry(ctx, FromRPC(err)); err != nil {
				if isRestarted(instance, err) {
					err = &LostError{ProcessID: request.GetProcessId(), Started: true, Restarted: true, Err: err}
				}
				return nil, err
			}
		case response.GetSatisfied() || over || closed:
			return response, nil
		default:
			connection = link{}
			// One more look: it may have said something before it closed. Silence
			// goes on.
			closed = response.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && request.GetIdle() == nil
		}
		if limited {
			request.Wait = durationpb.New(max(0, time.Until(until)))
		}
	}
}

// retry waits before another attempt after err, or returns what is to be failed
// with.
func (l *link) retry(ctx context.Context, err error) error {
	e, ok := err.(*Error)
	if l.lostAt.IsZero() {
		l.lostAt = time.Now()
	}
	if !ok || !transient(e, &l.odd) || time.Since(l.lostAt) > lostFor {
		return err
	}
	if !l.backoff.Wait(ctx, retryAfter(err)) {
		return fmt.Errorf("failed to wait to the end: %w", context.Cause(ctx))
	}
	return nil
}
