package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// Process is a process that this program owns, from [Client.Start] or [Client.Attach].
// It is followed across lost connections as by [Client.Run], without losing or
// repeating a byte, whether or not a method is called.
//
// Its events are delivered to every reader of [Process.Events]. Without a reader, and
// until Wait, Communicate or Read is called, it can write no more than the window of
// the server, like a process with an unread pipe; a slow reader slows it down.
//
// Every Process must be waited for by Wait or Communicate until it has closed, or
// detached, or closed. All methods may be called concurrently.
type Process struct {
	client *Client
	ref    ProcessRef
	pid    int32 // set before the Process is returned
	feed   *processFeed
	stdin  *stdinPump // nil without input
	// writing has a token during a Write.
	writing chan struct{}
	detach  func()
	cancel  context.CancelCauseFunc

	// over is closed when the run has ended, after exit and err were set.
	over chan struct{}
	exit Exit
	err  error
	// failed ends with err when the process can no longer be followed.
	failed *lifetime
}

// ID returns the id of the process in its session. It never changes.
func (p *Process) ID() string { return p.ref.ProcessID }

// PID returns the pid of the process on the server, for information. It never changes.
func (p *Process) PID() int32 { return p.pid }

// Ref returns a reference for [Client.Attach] and the like, in any program; its
// AfterSeq is the last consumed event.
func (p *Process) Ref() ProcessRef {
	ref := p.ref
	ref.AfterSeq = p.feed.takenUpTo()
	return ref
}

// WaitFor is [Client.Wait] for this process: its ids replace those of request, which it does
// not modify.
func (p *Process) WaitFor(ctx context.Context, request *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	request = proto.CloneOf(request)
	request.SessionId, request.ProcessId = p.ref.SessionID, p.ref.ProcessID
	return p.client.Wait(ctx, request)
}

// Ports is [Client.ListPorts] for this process and its descendants.
func (p *Process) Ports(ctx context.Context) (*execwirev1.ListPortsResponse, error) {
	return p.client.ListPorts(ctx, &execwirev1.ListPortsRequest{SessionId: p.ref.SessionID, ProcessId: p.ref.ProcessID})
}

// WatchPorts is [Client.WatchPorts] for this process and its descendants.
func (p *Process) WatchPorts(ctx context.Context, do func(*execwirev1.WatchPortsResponse) error) error {
	return p.client.WatchPorts(ctx, &execwirev1.WatchPortsRequest{SessionId: p.ref.SessionID, ProcessId: p.ref.ProcessID}, do)
}

// Wait blocks until the process has closed, and returns how it ended, or until ctx is
// done, which does not affect the process. Without readers of its events, output is
// discarded beyond StartOptions.KeepBytes. Wait may be called again and returns the
// same result.
//
// The end of a process, however it ended, is not an error. Errors are [*LostError] when
// the process could not be resumed, [*ProtocolError], [ErrDetached], [ErrClosed], an
// [*Error], for example because another client took over the process, or wrap the cause
// of ctx.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	defer p.feed.discard()()
	if !p.awaitEnd(ctx) {
		return Exit{ProcessID: p.ID()}, fmt.Errorf("failed to wait to the end: %w", context.Cause(ctx))
	}
	return p.exit, p.err
}

// awaitEnd blocks until the run has ended, or returns false if ctx is done first.
func (p *Process) awaitEnd(ctx context.Context) bool {
	return notify.Wait(ctx, p.over) == nil || notify.IsClosed(p.over)
}

// Signal sends a signal to the process group. It blocks until the server has answered;
// errors are [*Error], those of Wait, or wrap the cause of ctx. If the answer is lost,
// the signal may have been delivered.
func (p *Process) Signal(ctx context.Context, signal syscall.Signal) error {
	return p.control(ctx, func(ctx context.Context) error {
		return p.client.Signal(ctx, p.ref, signal)
	})
}

// Resize sets the size of the terminal. It blocks until the server has answered, across
// lost connections; errors are those of Signal.
func (p *Process) Resize(ctx context.Context, rows, columns uint32) error {
	return p.control(ctx, func(ctx context.Context) error {
		_, err := repeatCall(ctx, p.client.life, p.client.processes.ResizeTerminal, &execwirev1.ResizeTerminalRequest{
			SessionId: p.ref.SessionID, ProcessId: p.ref.ProcessID,
			Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}})
		return err
	})
}

// Terminate ends the process and its descendants, and returns the method used. It
// blocks until they are gone, across lost connections; errors are those of Signal. The
// remaining output and the end are still delivered, see Wait.
func (p *Process) Terminate(ctx context.Context, how Termination) (*execwirev1.TerminateProcessResponse, error) {
	var response *execwirev1.TerminateProcessResponse
	err := p.control(ctx, func(ctx context.Context) (err error) {
		response, err = p.client.Terminate(ctx, p.ref, how)
		return err
	})
	return response, err
}

// control makes a call that is cancelled when the process can no longer be followed.
func (p *Process) control(ctx context.Context, call func(context.Context) error) error {
	if over := p.failed.over(); over != nil {
		return over
	}
	ctx, done := p.failed.within(ctx)
	defer done()
	err := call(ctx)
	if over := p.failed.over(); err != nil && over != nil {
		return over
	}
	return err
}

// Detach gives up ownership: the process continues without an owner. It blocks until
// the server has confirmed, which needs a connection; if ctx is done first, the process
// is detached as soon as possible. Input written before is delivered, unless the
// process takes longer than a second to accept it. The error is that of Wait if the
// process ended otherwise before, or wraps the cause of ctx.
func (p *Process) Detach(ctx context.Context) error {
	p.detach()
	switch {
	case !p.awaitEnd(ctx):
		return fmt.Errorf("failed to detach to the end: %w", context.Cause(ctx))
	case errors.Is(p.err, ErrDetached):
		return nil
	}
	return p.err
}

// errProcessClosed is the error of calls after Close.
var errProcessClosed error = processClosedError{}

type processClosedError struct{}

func (processClosedError) Error() string        { return "the handle of the process was closed" }
func (processClosedError) Is(target error) bool { return target == ErrClosed }

// Close releases the process and blocks until that is done, some seconds at most. A
// process from Start that still runs is killed, or ends with its grace period if the
// server cannot be reached. One from Attach continues without an owner. Received events
// can still be read. It always returns nil.
func (p *Process) Close() error {
	p.cancel(errProcessClosed)
	<-p.over
	return nil
}

// Termination describes how to end a process. The zero value sends SIGTERM, and SIGKILL
// after 5 s.
type Termination struct {
	// Force kills immediately.
	Force bool
	// Timeout is how long to wait before killing; nil is 5 s, 0 kills immediately.
	Timeout *time.Duration
}

func (t Termination) message() *execwirev1.Termination {
	switch {
	case t.Force:
		return &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
	case t.Timeout != nil:
		return &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{
			Graceful: &execwirev1.GracefulTermination{Timeout: durationpb.New(*t.Timeout)}}}
	}
	return &execwirev1.Termination{}
}

// StartOptions describe what to start and how to follow it. Only Process is required,
// and not by [Client.Attach]. The callbacks are called one at a time, must not block,
// and must not call the Process.
type StartOptions struct {
	// Process is the process to start; [Command.Request] builds it. Start does not
	// modify it. An empty process id is replaced by a generated one, so that the start
	// can be repeated.
	Process *execwirev1.StartProcessRequest
	// Grace is how long the server keeps the process, and the client tries to resume
	// it, after a lost connection. nil is the default of the server; with 0 a lost
	// connection ends the process.
	Grace *time.Duration
	// KeepBytes is how much of what all readers have consumed is kept for later
	// readers, in bytes, plus 256 for each event. 0 is [DefaultKeepBytes]; a negative
	// value keeps nothing.
	KeepBytes int
	// OnLost is called when the connection is lost and resuming begins, OnResumed when
	// it succeeded.
	OnLost    func(error)
	OnResumed func()
	// OnRejected is called when the server rejected input, with the reason.
	OnRejected func(*execwirev1.RunRejected)
}

// Start starts a process and blocks until it runs, is rejected ([*Error]), or ctx is
// done; then the process is killed, as far as possible within a few seconds. The
// Process outlives ctx. An unanswered start is repeated as by [Client.Run].
func (c *Client) Start(ctx context.Context, options StartOptions) (*Process, error) {
	r, err := newRun(c, options.run(options.Process))
	if err != nil {
		return nil, err
	}
	io := options.Process.GetIo()
	if terminal := io.GetTerminal() != nil; terminal || io.GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE {
		r.stdin = r.newPump(stdinReader{}, terminal)
	}
	return runInBackground(ctx, r, 0, options)
}

// Attach takes over an existing process from its owner, if any, and blocks until it
// owns it, is rejected ([*Error]), or ctx is done. Events begin after process.AfterSeq.
// StartOptions.Process is ignored.
//
// Unlike a started process, it continues after [Process.Close].
func (c *Client) Attach(ctx context.Context, process ProcessRef, options StartOptions) (*Process, error) {
	r, err := newResume(c, process, options.run(nil))
	if err != nil {
		return nil, err
	}
	r.stdin = r.newPump(stdinReader{}, false) // the first answer has the kind of its input
	return runInBackground(ctx, r, process.AfterSeq, options)
}

func (o StartOptions) run(process *execwirev1.StartProcessRequest) RunOptions {
	return RunOptions{Process: process, Grace: o.Grace, OnLost: o.OnLost, OnResumed: o.OnResumed, OnRejected: o.OnRejected}
}

// runInBackground runs r in the background and returns once the process runs.
func runInBackground(ctx context.Context, r *run, afterSeq uint64, options StartOptions) (*Process, error) {
	if err := answered(ctx, ctx.Err()); err != nil {
		return nil, err
	}
	detach := make(chan struct{})
	r.control.detach = detach
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	start := r.start.GetProcess()
	p := &Process{
		client:  r.client,
		ref:     ProcessRef{SessionID: start.GetSessionId(), ProcessID: start.GetProcessId()},
		feed:    newProcessFeed(start.GetProcessId(), afterSeq, options.KeepBytes, r.acks),
		writing: make(chan struct{}, 1),
		detach:  sync.OnceFunc(func() { close(detach) }),
		cancel:  cancel,
		over:    make(chan struct{}),
		failed:  newLifetime(),
	}
	r.feed = p.feed
	if !r.stdin.discarded {
		p.stdin = r.stdin
	}
	go p.follow(life, r)
	select {
	case <-r.settled:
		if r.started {
			p.pid = r.pid
			return p, nil
		}
	case <-ctx.Done():
		cancel(context.Cause(ctx))
	}
	if <-p.over; p.err != nil || !r.started {
		return nil, p.err
	}
	p.pid = r.pid
	return p, nil // it has closed already
}

// follow runs r to its end.
func (p *Process) follow(ctx context.Context, r *run) {
	defer p.cancel(nil)
	p.exit, p.err = r.run(ctx)
	if p.err != nil {
		p.failed.end(p.err)
	}
	p.feed.end(p.err)
	close(p.over)
}
