package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// FollowOptions are the destinations of the output. All are optional. The callbacks are
// called one at a time and block Follow while they run.
type FollowOptions struct {
	// Stdout receives stdout or terminal output, Stderr the error output. nil discards
	// it.
	Stdout, Stderr io.Writer
	// Resizes has the sizes of the terminal passed to OnEvent, too, as events without a seq;
	// after a resumed connection the last one again.
	Resizes bool
	// OnEvent is called with every event after it was written, including gaps. An error
	// ends Follow.
	OnEvent func(*execwirev1.ProcessEvent) error
	// OnGap is called where output is missing.
	OnGap func(*execwirev1.OutputGap)
	// OnLost is called when the connection is lost and Follow tries to resume,
	// OnResumed when it succeeded.
	OnLost    func(error)
	OnResumed func()
}

// Follow observes the output of a process and blocks until it has closed. It neither
// owns the process nor blocks it: when it falls behind what is retained, it calls
// OnGap. A lost connection is resumed for 75 seconds; nothing is written twice.
//
// Errors are [*Error] from the server, [*LostError] when the connection was permanently
// lost or the process is no longer known, [*ProtocolError], [*OutputError], those of
// OnEvent, or wrap the cause of ctx.
func (c *Client) Follow(ctx context.Context, process ProcessRef, options FollowOptions) (Exit, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	f := &follower{client: c, process: process, options: options,
		conn: connState{onLost: options.OnLost, onResumed: options.OnResumed}}
	f.events = newEventWriter(RunOptions{Stdout: options.Stdout, Stderr: options.Stderr, OnGap: options.OnGap})
	f.events.startAfter(process.AfterSeq)
	if err := f.conn.resume(ctx, f.attempt, f.finalError); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("failed to follow to the end: %w", context.Cause(ctx))
		}
		return Exit{ProcessID: process.ProcessID, Resumed: f.conn.resumed}, err
	}
	return f.events.result(process.ProcessID, f.conn.resumed), nil
}

// follower is one Follow.
type follower struct {
	client  *Client
	process ProcessRef
	options FollowOptions
	events  eventWriter
	conn    connState
	started bool // the server knows the process
}

// attempt follows the process over one stream. It returns nil when the process has
// closed.
func (f *follower) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	// The server sends no response header before the first event.
	described, err := f.client.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
		SessionId: f.process.SessionID, ProcessId: f.process.ProcessID})
	if err != nil {
		return FromRPC(err)
	}
	f.conn.instance = described.GetInstanceId()
	f.started = true
	f.conn.setConnected()
	if f.events.setInitialState(described.GetProcess()); f.events.closed {
		return nil
	}
	stream, err := f.client.processes.WatchProcess(ctx, &execwirev1.WatchProcessRequest{
		SessionId: f.process.SessionID, ProcessId: f.process.ProcessID, AfterSeq: f.events.last, Resizes: f.options.Resizes})
	if err != nil {
		return FromRPC(err)
	}
	return f.client.life.converse(ctx, cancel, nil, func() error { return f.receive(stream) })
}

func (f *follower) receive(stream grpc.ServerStreamingClient[execwirev1.WatchProcessResponse]) error {
	for {
		response, err := stream.Recv()
		switch {
		case err != nil && f.events.closed:
			return nil
		case errors.Is(err, io.EOF):
			return protocolErrorf("the stream ended after seq %d without the closed event", f.events.last)
		case err != nil:
			return FromRPC(err)
		}
		if err := f.take(response.GetEvents()); err != nil {
			return err
		}
	}
}

func (f *follower) take(events []*execwirev1.ProcessEvent) error {
	for _, event := range events {
		before := f.events.last
		if event.GetResized() == nil {
			if _, err := f.events.write(event); err != nil {
				return err
			}
			if f.events.last == before {
				continue // already received
			}
			f.conn.resetFailures()
		}
		if f.options.OnEvent == nil {
			continue
		}
		if err := f.options.OnEvent(event); err != nil {
			return err
		}
	}
	return nil
}

// finalError returns the final error if another stream after err is useless, or nil.
func (f *follower) finalError(err error) error {
	e, ok := err.(*Error) // not errors.As: the error of a writer is no answer
	switch {
	case !ok && f.started && errors.As(err, new(*ConnectionLostError)):
		return f.lostError(err)
	case !ok || !f.started:
		return err
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND,
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return f.lostError(err)
	case !f.conn.isTransient(e):
		return err
	case f.conn.lostFor() > resumeTimeout:
		return f.lostError(err)
	}
	return nil
}

func (f *follower) lostError(err error) *LostError {
	return f.conn.lostError(f.process.ProcessID, true, &f.events, err)
}

// Wait is WaitProcess beyond the longest wait of the server and across lost
// connections, which are resumed for 75 seconds. Without request.Wait it waits until
// the condition holds, or cannot hold any more because the process has closed. It does
// not modify request.
//
// Errors are [*Error] when the server rejected the call or was permanently lost,
// [*LostError] when it was restarted, or wrap the cause of ctx.
func (c *Client) Wait(ctx context.Context, request *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	request = proto.CloneOf(request)
	limited, until := request.GetWait() != nil, time.Now().Add(request.GetWait().AsDuration())
	// A wait is answered when it ends, which is too late to learn the instance id.
	described, _ := c.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{SessionId: request.GetSessionId(), ProcessId: request.GetProcessId()})
	for closed := false; ; {
		response, err := repeat(ctx, c.life, func(ctx context.Context) (*execwirev1.WaitProcessResponse, error) {
			if limited {
				request.Wait = durationpb.New(max(0, time.Until(until)))
			}
			return c.processes.WaitProcess(ctx, request)
		})
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("failed to wait to the end: %w", context.Cause(ctx))
		case isRestarted(described.GetInstanceId(), err):
			return nil, &LostError{ProcessID: request.GetProcessId(), Started: true, Restarted: true, Err: err}
		case err != nil || response.GetSatisfied() || closed || limited && time.Until(until) <= 0:
			return response, err
		}
		// Check once more: the output may match since before the close. Silence needs
		// none.
		closed = response.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && request.GetIdle() == nil
	}
}
