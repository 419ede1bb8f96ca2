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
	"github.com/execwire/execwire/internal/notify"
)

// RunOptions describe what to run, and its input and output. Only Process is required,
// and not by [Client.Resume]. The callbacks are called one at a time and block Run
// while they run.
type RunOptions struct {
	// Process is the process to start. Run does not modify it. An empty process id is
	// replaced by a generated one, so that the start can be repeated; Stdin makes an
	// absent or unspecified stdin a pipe.
	Process *execwirev1.StartProcessRequest
	// Grace is how long the server keeps the process, and Run tries to resume, after a
	// lost connection. nil is the default of the server; with 0 a lost connection ends
	// the process.
	Grace *time.Duration

	// Stdin is the input. Its end closes the stdin of the process or, with a terminal,
	// is sent as the end-of-file character. nil sends nothing. If Process identifies a
	// process that the same request started before, as after a crash of the caller,
	// Stdin must be the same input from its beginning: the part that the process has
	// consumed is read and dropped. If it ends before that, Run fails with an
	// [*InputError] for [ErrInputDiffers].
	//
	// If the process ends first, a pending Read is interrupted if Stdin is an *os.File
	// or has SetReadDeadline, whose deadline Run then clears. Otherwise one Read may
	// outlive Run, and its result is dropped.
	Stdin io.Reader
	// Stdout receives stdout or terminal output, Stderr the error output. nil discards
	// it. One goroutine writes to both. A Write that blocks also blocks the process and
	// Run. What it is given is overwritten afterwards, so it must not keep it.
	Stdout, Stderr io.Writer

	// Resize, Signals and Terminate carry further requests for the process, in order
	// per channel, once it was started and while connected. The last size and
	// termination are sent again after a lost connection; a signal in transit may be
	// lost but is never sent twice.
	Resize    <-chan *execwirev1.TerminalSize
	Signals   <-chan *execwirev1.RunSignal
	Terminate <-chan *execwirev1.Termination

	// Detach detaches when it is closed or receives a value: Run returns [ErrDetached],
	// and the process continues without an owner. Input read before is delivered,
	// unless the process takes longer than a second to accept it.
	Detach <-chan struct{}
	// DetachKeys is a byte sequence in Stdin that detaches. Neither it nor input after
	// it is sent; a prefix of it is withheld until the next byte shows that it does not
	// match. Empty disables it.
	DetachKeys []byte

	// OnStarted is called once, when the process has started.
	OnStarted func(*execwirev1.Process)
	// OnLost is called when the connection is lost and Run begins to resume, OnResumed
	// when it succeeded.
	OnLost    func(error)
	OnResumed func()
	// OnGap is called where output is missing. [Exit.DroppedBytes] has the exact total.
	OnGap func(*execwirev1.OutputGap)
	// OnExited is called once, when the process has exited. Run continues until the end
	// of the output, which descendants of the process may keep open.
	OnExited func()
	// OnRejected is called when the server rejected a request for the process.
	OnRejected func(*execwirev1.RunRejected)
}

// Run starts a process, forwards its input and output, and blocks until it has closed:
// it has exited and all output was written. A lost connection is resumed while the
// server keeps the process; nothing is lost or written twice. An unanswered start is
// repeated for 25 seconds, while the server certainly knows the process by its id;
// after that the command could run twice, and Run fails with a [*LostError] instead.
// Run may be called concurrently.
//
// The end of a process, however it ended, is not an error: see [Exit]. Errors are
// [*Error] from the server, [*LostError] when the process could not be resumed,
// [*ProtocolError], [*OutputError], [*InputError], [ErrDetached], or wrap the cause of
// ctx. When ctx is done, the process is killed, as far as possible within a few
// seconds.
func (c *Client) Run(ctx context.Context, options RunOptions) (Exit, error) {
	r, err := newRun(c, options)
	if err != nil {
		return Exit{}, err
	}
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (Exit, error) {
	// The stream outlives ctx by the time it takes to kill the process.
	streams, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r.cancel = cancel
	defer context.AfterFunc(r.client.life.ctx, func() { cancel(r.client.life.over()) })()
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		if !r.existing {
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
	if err != nil {
		cancel(nil)
	}
	r.stdin.stop()
	if r.existing && err != nil && (interrupted || isLocalError(err)) {
		r.releaseExisting()
	}
	return r.result(ctx, err, interrupted)
}

// run is one Run. Its fields belong to the goroutine of Run unless their type allows
// concurrent use.
type run struct {
	client  *Client
	options RunOptions
	// start is repeated unchanged until it is answered. For an existing process it has
	// only the id and the grace period.
	start *execwirev1.RunStart
	// existing is whether the process already existed: see [Client.Resume].
	existing bool
	// cancel ends all streams of the run. Any goroutine may call it.
	cancel context.CancelCauseFunc
	// settled is closed when the start was answered, or the run has ended.
	settled chan struct{}

	events  eventWriter
	acks    *acknowledger
	stdin   *stdinPump
	control control

	feed *processFeed // receives the events of a Process; else nil
	// The current stream began after resumedAt, so it repeats events up to repeated.
	resumedAt, repeated uint64

	conn connState
	// sentAt is when the start was first sent and may have reached the server; zero
	// before.
	sentAt time.Time
	// started is whether the server confirmed that the process runs.
	started bool
	pid     int32 // once started
	// detached is whether the server was asked to detach on a stream.
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
		conn:    connState{onLost: options.OnLost, onResumed: options.OnResumed},
		control: control{
			resize: options.Resize, signals: options.Signals, terminate: options.Terminate, detach: options.Detach,
		},
	}
	if options.Grace != nil {
		r.start.Grace = durationpb.New(*options.Grace)
	}
	r.stdin = r.newPump(stdinReader{}, false)
	if options.Stdin == nil {
		r.stdin.discarded = true
		return r, nil
	}
	terminal, err := openStdin(process)
	if err != nil {
		return nil, err
	}
	r.openPump(terminal)
	return r, nil
}

// openPump prepares the input; reading begins with the first stream.
func (r *run) openPump(terminal bool) {
	input := newStdinReader(r.options.Stdin)
	if keys := r.options.DetachKeys; len(keys) > 0 {
		pressed := make(chan struct{})
		r.control.keysPressed = pressed
		input.Reader = &detachReader{from: input.Reader, keys: keys, pressed: sync.OnceFunc(func() { close(pressed) })}
	}
	r.stdin = r.newPump(input, terminal)
}

// newPump returns a pump whose failure ends the run.
func (r *run) newPump(input stdinReader, terminal bool) *stdinPump {
	return newStdinPump(input, terminal, func(err error) { r.cancel(err) })
}

// openStdin gives process a stdin, and reports whether it is a terminal.
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

// settle records that the start was answered, or never will be.
func (r *run) settle() {
	if !notify.IsClosed(r.settled) {
		close(r.settled)
	}
}

// result returns the result of Run after follow ended with err.
func (r *run) result(ctx context.Context, err error, interrupted bool) (Exit, error) {
	if err == nil {
		exit := r.events.result(r.start.GetProcess().GetProcessId(), r.conn.resumed)
		if interrupted && exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
			return exit, fmt.Errorf("failed to run to the end: %w", context.Cause(ctx))
		}
		return exit, nil
	}
	exit := Exit{ProcessID: r.start.GetProcess().GetProcessId(), Resumed: r.conn.resumed}
	if interrupted {
		return exit, fmt.Errorf("failed to run to the end: %w", context.Cause(ctx))
	}
	return exit, err
}
