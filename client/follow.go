package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// lostFor is for how long a lost connection is resumed where no process depends
// on it.
const lostFor = assumedGrace + graceMargin

// FollowOptions says where output goes. All of it is optional. The callbacks
// are called one at a time and hold Follow up while they run.
type FollowOptions struct {
	// Stdout gets the output of the process or of its terminal, Stderr its error
	// output. nil drops it.
	Stdout, Stderr io.Writer
	// OnEvent is called with every event once it was written, gaps included. Its
	// error ends Follow.
	OnEvent func(*execwirev1.ProcessEvent) error
	// OnGap is called when output is missing, at its place in the output.
	OnGap func(*execwirev1.OutputGap)
	// OnLost is called when the connection is lost and Follow begins to try to
	// resume, OnResumed when it succeeded.
	OnLost    func(error)
	OnResumed func()
}

// Follow looks on as a process writes, and blocks until it has closed. It owns
// nothing and holds nothing up: where it falls behind what is kept, OnGap says
// so. A lost connection is resumed for a minute and a quarter, and nothing is
// written twice.
//
// Errors are [*Error] when the server refused, [*LostError] when the connection
// was lost for good or the process is not known any more, [*ProtocolError],
// [*OutputError], those of OnEvent, or wrap the cause of ctx.
func (c *Client) Follow(ctx context.Context, process ProcessRef, options FollowOptions) (Exit, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	f := &follower{client: c, process: process, options: options}
	f.events = newEventWriter(RunOptions{Stdout: options.Stdout, Stderr: options.Stderr, OnGap: options.OnGap})
	f.events.join(process.AfterSeq)
	for {
		err := f.attempt(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			err = f.hopeless(err)
		}
		if err == nil && f.link.backoff.Wait(ctx, retryAfter(f.link.lost)) {
			continue
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("failed to follow to the end: %w", context.Cause(ctx))
		}
		return Exit{ProcessID: process.ProcessID, Resumed: f.link.resumed}, err
	}
	exit := f.events.result()
	exit.ProcessID, exit.Resumed = process.ProcessID, f.link.resumed
	return exit, nil
}

// follower is one Follow.
type follower struct {
	client  *Client
	process ProcessRef
	options FollowOptions
	events  eventWriter
	link    link
}

// attempt follows the process over one stream. It returns nil when the process
// has closed.
func (f *follower) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	// A stream says nothing before there is something to say.
	described, err := f.client.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
		SessionId: f.process.SessionID, ProcessId: f.process.ProcessID})
	if err != nil {
		return FromRPC(err)
	}
	f.link.instance = described.GetInstanceId()
	f.regain()
	if f.events.meet(described.GetProcess()); f.events.closed {
		return nil
	}
	stream, err := f.client.processes.WatchProcess(ctx, &execwirev1.WatchProcessRequest{
		SessionId: f.process.SessionID, ProcessId: f.process.ProcessID, AfterSeq: f.events.last})
	if err != nil {
		return FromRPC(err)
	}
	defer f.client.life.endInSilence(cancel)()
	for {
		response, err := stream.Recv()
		switch {
		case err != nil && f.events.closed:
			return nil
		case errors.Is(err, io.EOF):
			return protocolErrorf("the stream ended after seq %d without saying that the process closed", f.events.last)
		case err != nil:
			return orSilence(ctx, FromRPC(err))
		}
		if err := f.take(response.GetEvents()); err != nil {
			return err
		}
	}
}

func (f *follower) take(events []*execwirev1.ProcessEvent) error {
	for _, event := range events {
		before := f.events.last
		if _, err := f.events.write(event); err != nil {
			return err
		}
		if f.events.last == before {
			continue // known already
		}
		f.link.odd = 0
		f.link.backoff.Reset()
		if f.options.OnEvent == nil {
			continue
		}
		if err := f.options.OnEvent(event); err != nil {
			return err
		}
	}
	return nil
}

// regain notes that the server answers, again or for the first time.
func (f *follower) regain() {
	f.link.started = true
	if f.link.lostAt.IsZero() {
		return
	}
	f.link.lostAt, f.link.lost = time.Time{}, nil
	f.link.resumed++
	if f.options.OnResumed != nil {
		f.options.OnResumed()
	}
}

// hopeless returns what Follow fails with when there is no use in another
// stream after err; otherwise it notes that the connection is lost.
func (f *follower) hopeless(err error) error {
	e, ok := err.(*Error) // not errors.As: what a writer returned is no answer
	switch {
	case !ok && f.link.started && errors.As(err, new(*ConnectionLostError)):
		return f.lostError(err)
	case !ok || !f.link.started:
		return err
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND,
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return f.lostError(err)
	case !transient(e, &f.link.odd):
		return err
	case !f.link.lostAt.IsZero() && time.Since(f.link.lostAt) > lostFor:
		return f.lostError(err)
	}
	f.link.lost = err
	if f.link.lostAt.IsZero() {
		f.link.lostAt = lostAt(err)
		if f.options.OnLost != nil {
			f.options.OnLost(err)
		}
	}
	return nil
}

func (f *follower) lostError(err error) *LostError {
	lost := &LostError{
		ProcessID: f.process.ProcessID, Started: true, Exit: f.events.exit, LastSeq: f.events.last,
		Restarted: isRestarted(f.link.instance, err), Err: err}
	if !f.link.lostAt.IsZero() {
		lost.Lost = time.Since(f.link.lostAt)
	}
	return lost
}
