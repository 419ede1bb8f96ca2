package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// RunOptions says what to run and where its input and output go. Only Process
// is required, and not by [Client.Resume]. The callbacks are called one at a
// time and hold Run up while they run.
type RunOptions struct {
	// Process is the process to start. Run does not change it. An empty process
	// id is replaced by a new one, so that the start can be repeated; Stdin
	// turns an absent or unspecified stdin into a pipe.
	Process *execwirev1.StartProcessRequest
	// Grace is how long the server keeps the process when the connection is
	// lost, and so how long Run tries to resume. nil leaves it to the server; 0
	// means that a lost connection is the end.
	Grace *time.Duration

	// Stdin is the input; its end closes the process's stdin or, when the
	// process has a terminal, is sent as the terminal's end-of-file character.
	// nil sends nothing. When Process names a process that the same request
	// started before, as after a crash of that caller, Stdin must be the same
	// input from its beginning: what the process has taken of it is read and
	// dropped. It ending before that is an [*InputError] with [ErrInputDiffers].
	//
	// When the process ends first, a Read that is going on is
	// interrupted if Stdin is an *os.File or has SetReadDeadline, whose deadline
	// Run then leaves unset. Any other Reader is left alone: one Read may outlive Run, and what it returns is
	// dropped.
	Stdin io.Reader
	// Stdout gets the output of the process or of its terminal, Stderr its error
	// output. nil drops it. They are written to by one goroutine. A Write that
	// blocks holds the process up, and Run too.
	Stdout, Stderr io.Writer

	// Resize, Signals and Terminate carry what else the process is told, in
	// order per channel, once it was started and while it is connected. The last
	// size and termination are told again after a lost connection; a signal
	// that was on its way then may be lost but is never sent twice.
	Resize    <-chan *execwirev1.TerminalSize
	Signals   <-chan *execwirev1.RunSignal
	Terminate <-chan *execwirev1.Termination

	// Detach gives the process up when it is closed, or gets a value: Run then
	// returns [ErrDetached], and the process goes on without an owner. What was
	// read of Stdin before is passed on, unless the process takes longer than a
	// second to accept it.
	Detach <-chan struct{}
	// DetachKeys, when Stdin has them one after the other, do the same. They are
	// not passed on, nor is what comes after them; the first of them are held
	// back until it is known that the rest does not follow. Empty has none.
	DetachKeys []byte

	// OnStarted is called once, when the process runs.
	OnStarted func(*execwirev1.Process)
	// OnLost is called when the connection is lost and Run begins to try to
	// resume, OnResumed when it succeeded.
	OnLost    func(error)
	OnResumed func()
	// OnGap is called when output is missing, at its place in the output. How
	// much it was in the end is in [Exit.DroppedBytes].
	OnGap func(*execwirev1.OutputGap)
	// OnExited is called once, when the process has exited. Run still waits: for
	// the end of the output, which descendants of the process may hold open.
	OnExited func()
	// OnRejected is called when something was not done that the process was
	// told.
	OnRejected func(*execwirev1.RunRejected)
}

// Run starts a process, passes its input and output, and blocks until it has
// closed: it has exited and all of its output was written. A lost connection
// is resumed while the server keeps the process; nothing is lost or written
// twice. A start that was not answered is repeated for 25 seconds, in which the
// server still knows the process by its id; later the command could run twice,
// and Run fails with a [*LostError] instead. Run may be called concurrently.
//
// A process that ended is not an error, however it ended: see [Exit]. Errors
// are [*Error] when the server refused, [*LostError] when the process could not
// be resumed, [*ProtocolError], [*OutputError], [*InputError], [ErrDetached], or
// wrap the cause of ctx. When ctx is done, the process is killed, as far as that can be
// done within a few seconds.
func (c *Client) Run(ctx context.Context, options RunOptions) (Exit, error) {
	r, err := newRun(c, options)
	if err != nil {
		return Exit{}, err
	}
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (Exit, error) {
	// The stream outlives ctx for as long as it takes to kill the process.
	streams, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r.cancel = cancel
	defer context.AfterFunc(r.client.life.ctx, func() { cancel(r.client.life.over()) })()
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		if !r.found {
			r.kill(streams)
		}
		cancel(context.Cause(ctx))
	})
	err := r.follow(streams)
	r.settle()
	interrupted := !stop()
	if interrupted {
		<-killed
	}
	cancel(nil)
	if r.onEnded != nil {
		r.onEnded()
	}
	r.stdin.stop()
	if r.found && err != nil && (interrupted || isOurs(err)) {
		r.letGo()
	}
	return r.result(ctx, err, interrupted)
}

// run is one Run. Its fields belong to the goroutine of Run except where a
// type of a field says otherwise.
type run struct {
	client  *Client
	options RunOptions
	// start is repeated identically until it is answered. Of a process that was
	// found it has only what names it, and the grace.
	start *execwirev1.RunStart
	// found is whether the process was there before: see [Client.Resume].
	found bool
	// cancel ends all streams of the run. Anybody may call it.
	cancel context.CancelCauseFunc
	// settled is closed when the start was answered, or the run is over.
	settled chan struct{}

	events  eventWriter
	acks    acknowledger
	stdin   *stdinPump // nil without input; its methods know
	control control

	// feed gets the events if a Process has them, else nil; onEnded is called when the
	// run is over and nothing else is ended yet, unless it is nil.
	feed    *processFeed
	onEnded func()
	// The stream of now began behind resumedAt, so that it tells again what is up to
	// repeated.
	resumedAt, repeated uint64

	link link
	// detached is whether the server was told on a stream that the process is
	// given up.
	detached atomic.Bool
}

func newRun(c *Client, options RunOptions) (*run, error) {
	if options.Process == nil {
		return nil, errors.New("failed to run: RunOptions.Process is required")
	}
	process := proto.CloneOf(options.Process)
	if process.GetProcessId() == "" {
		process.ProcessId = uuid.NewString()
	}
	r := &run{
		client:  c,
		options: options,
		start:   &execwirev1.RunStart{Process: process},
		settled: make(chan struct{}),
		events:  newEventWriter(options),
		acks:    newAcknowledger(),
		control: control{
			resize: options.Resize, signals: options.Signals, terminate: options.Terminate, detach: options.Detach,
		},
	}
	if options.Grace != nil {
		r.start.Grace = durationpb.New(*options.Grace)
	}
	if options.Stdin == nil {
		return r, nil
	}
	terminal, err := openStdin(process)
	if err != nil {
		return nil, err
	}
	r.openPump(terminal)
	return r, nil
}

// openPump prepares the input, which begins to be read with the first stream.
func (r *run) openPump(terminal bool) {
	input := newStdinReader(r.options.Stdin)
	if keys := r.options.DetachKeys; len(keys) > 0 {
		pressed := make(chan struct{})
		r.control.pressed = pressed
		input = &detachReader{stdinReader: input, keys: keys, pressed: sync.OnceFunc(func() { close(pressed) })}
	}
	r.stdin = newStdinPump(input, terminal, func(err error) { r.cancel(err) })
}

// openStdin makes process read input, and reports whether from a terminal.
func openStdin(process *execwirev1.StartProcessRequest) (terminal bool, err error) {
	if process.GetIo().GetTerminal() != nil {
		return true, nil
	}
	switch process.GetIo().GetPipes().GetStdin() {
	case execwirev1.StdinMode_STDIN_MODE_PIPE:
	case execwirev1.StdinMode_STDIN_MODE_UNSPECIFIED:
		process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
			Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	default:
		return false, errors.New(
			"failed to run: RunOptions.Stdin is set, but Process.Io closes stdin: leave one of them out")
	}
	return false, nil
}

// settle says that the start was answered, or never will be.
func (r *run) settle() {
	select {
	case <-r.settled:
	default:
		close(r.settled)
	}
}

// result is what Run returns after follow ended with err.
func (r *run) result(ctx context.Context, err error, interrupted bool) (Exit, error) {
	if err == nil {
		exit := r.events.result()
		exit.ProcessID, exit.Resumed = r.start.GetProcess().GetProcessId(), r.link.resumed
		if interrupted && exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
			return exit, fmt.Errorf("failed to run to the end: %w", context.Cause(ctx))
		}
		return exit, nil
	}
	exit := Exit{ProcessID: r.start.GetProcess().GetProcessId(), Resumed: r.link.resumed}
	if interrupted {
		return exit, fmt.Errorf("failed to run to the end: %w", context.Cause(ctx))
	}
	return exit, err
}
