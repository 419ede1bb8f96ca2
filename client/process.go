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
)

// Process is a process that this program owns, from [Client.Start] or
// [Client.Attach]. It is followed across lost connections as [Client.Run] does,
// without losing or repeating a byte, whether or not a method is called.
//
// What it writes is pushed to whoever ranges over [Process.Events]. Until somebody
// does, or calls Wait, Communicate or Read, it is not let write more than the
// server's window, as with a pipe that nobody reads; with a slow reader it is paced
// by that.
//
// Every Process must be waited for by Wait or Communicate until it has closed, or
// given up by Detach, or closed. All methods may be called concurrently.
type Process struct {
	client *Client
	ref    ProcessRef
	feed   *processFeed
	input  *processInput // nil when the process gets none
	detach func()
	cancel context.CancelCauseFunc

	started chan struct{} // closed once info is known
	info    *execwirev1.Process

	// over is closed when nothing is left of the run, after exit and err were set.
	over chan struct{}
	exit Exit
	err  error
	// failed ends with err when the process cannot be followed any more.
	failed *lifetime
}

// ID returns the process's id in its session. It never changes.
func (p *Process) ID() string { return p.ref.ProcessID }

// Ref names the process for [Client.Attach] and the like, by whatever program:
// AfterSeq is what was taken here.
func (p *Process) Ref() ProcessRef {
	ref := p.ref
	ref.AfterSeq = p.feed.takenUpTo()
	return ref
}

// Info describes the process as it was when it was started, or attached to. It must
// not be changed.
func (p *Process) Info() *execwirev1.Process { return p.info }

// Wait blocks until the process has closed, and returns how it ended; or until ctx
// is done, which does nothing to the process. While nobody ranges over its events,
// what it writes is taken and dropped beyond what is kept, see
// StartOptions.KeepBytes. Wait may be called again, and returns the same then.
//
// A process that ended is not an error, however it ended. Errors are [*LostError]
// when the process could not be resumed, [*ProtocolError], [ErrDetached],
// [ErrClosed], an [*Error] such as that of somebody who took the process over, or
// wrap the cause of ctx.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	defer p.feed.discard()()
	if !p.awaitEnd(ctx) {
		return Exit{ProcessID: p.ID()}, fmt.Errorf("failed to wait to the end: %w", context.Cause(ctx))
	}
	return p.exit, p.err
}

// awaitEnd blocks until nothing is left of the run, or ctx is done before that, which
// is false.
func (p *Process) awaitEnd(ctx context.Context) bool {
	select {
	case <-p.over:
		return true
	case <-ctx.Done():
	}
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process's group. It blocks until the server has
// answered; errors are [*Error], those of Wait, or wrap the cause of ctx. A signal
// whose answer was lost may have been sent.
func (p *Process) Signal(ctx context.Context, signal syscall.Signal) error {
	return p.control(ctx, func(ctx context.Context) error {
		return p.client.Signal(ctx, p.ref, signal)
	})
}

// Resize gives the process's terminal a new size. It blocks until the server has
// answered, across lost connections; errors are those of Signal.
func (p *Process) Resize(ctx context.Context, rows, columns uint32) error {
	return p.control(ctx, func(ctx context.Context) error {
		_, err := repeat(ctx, p.client, func(ctx context.Context) (*execwirev1.ResizeTerminalResponse, error) {
			return p.client.processes.ResizeTerminal(ctx, &execwirev1.ResizeTerminalRequest{
				SessionId: p.ref.SessionID, ProcessId: p.ref.ProcessID,
				Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}})
		})
		return err
	})
}

// Terminate ends the process and its descendants, and says by what means. It blocks
// until they are gone, across lost connections; errors are those of Signal. Its
// output and its end still come, see Wait.
func (p *Process) Terminate(ctx context.Context, how Termination) (*execwirev1.TerminateProcessResponse, error) {
	var response *execwirev1.TerminateProcessResponse
	err := p.control(ctx, func(ctx context.Context) (err error) {
		response, err = p.client.Terminate(ctx, p.ref, how)
		return err
	})
	return response, err
}

// control makes a call that is over when the process cannot be followed any more.
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

// Detach gives the process up: it goes on without an owner. It blocks until the
// server knows, which has to wait for a connection; when ctx is done first, the
// process is given up as soon as that can be done. What was written to it before is
// passed on, unless the process takes longer than a second to accept it. The error
// is that of Wait if the process has ended otherwise before, or wraps the cause of
// ctx.
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

// errProcessClosed is what calls of a Process fail with after its Close.
var errProcessClosed error = processClosedError{}

type processClosedError struct{}

func (processClosedError) Error() string        { return "the handle of the process was closed" }
func (processClosedError) Is(target error) bool { return target == ErrClosed }

// Close ends the use of the process and blocks until nothing of that is left, some
// seconds at most. One from Start that still runs is killed, as far as the server
// can be reached; otherwise its grace ends it. One from Attach is left alone, without
// an owner. What was received can still be read. It always returns nil.
func (p *Process) Close() error {
	p.cancel(errProcessClosed)
	<-p.over
	return nil
}

// Termination says how to end a process. The zero value asks with SIGTERM and kills
// after 5 s.
type Termination struct {
	// Force kills at once.
	Force bool
	// Timeout is how long to wait before killing; nil is 5 s,
	// 0 kills at once.
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

// StartOptions says what to start and how to follow it. Only Process is required,
// and not by [Client.Attach]. The callbacks are called one at a time, must not
// block, and must not call the Process.
type StartOptions struct {
	// Process is the process to start; [Command.Request] makes one. Start does not
	// change it. An empty process id is replaced by a new one, so that the start can
	// be repeated.
	Process *execwirev1.StartProcessRequest
	// Grace is how long the server keeps the process when the connection is lost,
	// and so how long it is tried to resume. nil leaves it to the server; 0 means
	// that a lost connection is the end.
	Grace *time.Duration
	// KeepBytes is how much of what all readers have taken is kept in memory for
	// those that come later, in bytes, with 256 more for each event. 0 is
	// [DefaultKeepBytes]; less than 0 keeps nothing.
	KeepBytes int
	// OnLost is called when the connection is lost and it begins to be tried to
	// resume, OnResumed when that succeeded.
	OnLost    func(error)
	OnResumed func()
	// OnRejected is called when input was not passed on, with the reason.
	OnRejected func(*execwirev1.RunRejected)
}

// Start starts a process and blocks until it runs, was refused ([*Error]), or ctx is
// done, which kills it as far as that can be done within a few seconds. The Process
// lives on after ctx. A start that was not answered is repeated as by [Client.Run].
func (c *Client) Start(ctx context.Context, options StartOptions) (*Process, error) {
	run := options.run(options.Process)
	var input *processInput
	if io := options.Process.GetIo(); io.GetTerminal() != nil || io.GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE {
		input = newProcessInput()
		run.Stdin = input
	}
	r, err := newRun(c, run)
	if err != nil {
		return nil, err
	}
	return begin(ctx, r, input, 0, options)
}

// Attach takes up a process that is already there, owns it in the place of whoever
// did, and blocks until that is so, it was refused ([*Error]), or ctx is done. Its
// events begin after process.AfterSeq. StartOptions.Process is not used.
//
// Unlike one that was started, the process is left as it was found by [Process.Close].
func (c *Client) Attach(ctx context.Context, process ProcessRef, options StartOptions) (*Process, error) {
	run := options.run(nil)
	input := newProcessInput()
	run.Stdin = input
	r, err := newResume(c, process, run)
	if err != nil {
		return nil, err
	}
	return begin(ctx, r, input, process.AfterSeq, options)
}

func (o StartOptions) run(process *execwirev1.StartProcessRequest) RunOptions {
	return RunOptions{Process: process, Grace: o.Grace, OnLost: o.OnLost, OnResumed: o.OnResumed, OnRejected: o.OnRejected}
}

// begin runs r in the background and returns once the process runs.
func begin(ctx context.Context, r *run, input *processInput, afterSeq uint64, options StartOptions) (*Process, error) {
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
		feed:    newProcessFeed(afterSeq, options.KeepBytes, &r.acks, detach),
		input:   input,
		detach:  sync.OnceFunc(func() { close(detach) }),
		cancel:  cancel,
		started: make(chan struct{}),
		over:    make(chan struct{}),
		failed:  newLifetime(),
	}
	r.feed = p.feed
	r.options.OnStarted = func(info *execwirev1.Process) {
		p.info = proto.CloneOf(info)
		close(p.started)
	}
	go p.follow(life, r)
	select {
	case <-p.started:
		return p, nil
	case <-p.over:
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		if <-p.over; p.err != nil {
			return nil, p.err
		}
	}
	select {
	case <-p.started: // and closed already
		return p, nil
	default:
		return nil, p.err
	}
}

// follow runs r to its end.
func (p *Process) follow(ctx context.Context, r *run) {
	defer p.cancel(nil)
	r.onEnded = p.input.expire
	p.exit, p.err = r.run(ctx)
	if p.err != nil {
		p.failed.end(p.err)
	}
	p.feed.end(p.err)
	close(p.over)
}
