package server

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
)

// runStream is the server's side of a RunProcess stream type.
type runStream = grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// errDetached ends a run whose owner gave the process up. It is no error of the
// call.
var errDetached = errors.New("the owner detached")

// errRunOver tells the parts of a run that it has ended.
var errRunOver = errors.New("the run is over")

// RunProcess implements the RPC. The handler sends events; other goroutines
// receive, write stdin and send answers, so that none of them waits for
// another: a client that stops reading can still signal, and a process that
// stops reading can still be heard.
func (s *processService) RunProcess(stream runStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return unexpectedMessage("the stream ended before start or resume")
	}
	if err != nil {
		return err
	}
	run, err := s.openRun(stream, first)
	if err != nil {
		return err
	}
	return run.serve()
}

func unexpectedMessage(text string) error {
	return failure(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, nil, text)
}

// openRun starts or finds the process and takes the ownership.
func (s *processService) openRun(stream runStream, first *execwirev1.RunProcessRequest) (*run, error) {
	switch m := first.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		const prefix = "start.process."
		start, err := s.server.prepare(stream.Context(), prefix, m.Start.GetProcess())
		if err != nil {
			return nil, err
		}
		owner, created, err := start.session.StartOwned(stream.Context(), start.id, start.digest, start.spec, optionalDuration(m.Start.GetGrace()))
		if err != nil {
			return nil, nameField(prefix, m.Start.GetProcess().GetCommand(), err)
		}
		return s.newRun(stream, owner, 0, !created)
	case *execwirev1.RunProcessRequest_Resume:
		if id := m.Resume.GetInstanceId(); id != "" && id != s.server.instance {
			return nil, &session.Error{Kind: session.ProcessNotFound, Subject: m.Resume.GetProcessId()}
		}
		p, err := s.server.find(stream.Context(), m.Resume.GetSessionId(), m.Resume.GetProcessId())
		if err != nil {
			return nil, err
		}
		owner, err := p.Own(stream.Context(), m.Resume.GetAfterSeq(), optionalDuration(m.Resume.GetGrace()))
		if err != nil {
			return nil, err
		}
		return s.newRun(stream, owner, m.Resume.GetAfterSeq(), true)
	default:
		return nil, unexpectedMessage("the first message must be start or resume")
	}
}

func optionalDuration(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	value := d.AsDuration()
	return &value
}

// run is one RunProcess stream with the process it owns.
type run struct {
	server  *Server
	process *session.Process
	owner   *session.Ownership
	stream  runStream
	outbox  *outbox[execwirev1.RunProcessResponse]
	input   *inputQueue
	// lastSent is the seq of the last event that was sent, or that the client
	// had before.
	lastSent atomic.Uint64

	// ctx ends when the stream does, or the run: its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// noAcks is closed when the client has half-closed: from then on what was
	// sent counts as taken.
	noAcks chan struct{}
	// acknowledged holds a token when something was.
	acknowledged chan struct{}
	// terminations holds a token for each termination under way.
	terminations chan struct{}
}

func (s *processService) newRun(stream runStream, owner *session.Ownership, afterSeq uint64, resumed bool) (*run, error) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	r := &run{
		server: s.server, process: owner.Process(), owner: owner, stream: stream,
		outbox: newOutbox(stream), input: newInputQueue(s.server.cfg.Limits.StdinQueue),
		ctx: ctx, cancel: cancel, noAcks: make(chan struct{}), acknowledged: make(chan struct{}, 1),
		terminations: make(chan struct{}, maxTerminations),
	}
	r.lastSent.Store(afterSeq)
	if err := r.outbox.send(r.started(resumed)); err != nil {
		cancel(errRunOver)
		owner.Lost()
		return nil, err
	}
	return r, nil
}

func (r *run) started(resumed bool) *execwirev1.RunProcessResponse {
	offset := r.process.StdinOffset()
	r.input.begin(offset)
	output := r.process.Log().Limits() // which its start may have lowered
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: &execwirev1.RunStarted{
		Process:            toProcess(r.process),
		Resumed:            resumed,
		StdinOffset:        offset,
		StdinWindowBytes:   uint64(r.server.cfg.Limits.StdinQueue),
		OutputWindowBytes:  uint64(output.WindowBytes),
		OutputWindowEvents: uint64(output.RetainedEvents),
		InstanceId:         r.server.instance,
	}}}
}

// serve runs the stream to its end and settles the ownership by how it ended.
func (r *run) serve() error {
	// Recv returns only once this handler has, so the server waits for the
	// receiver, not the handler.
	r.server.receivers.Go(r.receive)
	stop := r.startWorkers()
	err := forward(r.ctx, r.process, r.owner, r.sendEvents)
	if errors.Is(err, eventlog.ErrFreed) {
		err = followFreed(r.ctx, r.process, r.lastSent.Load(), r.sendFreed)
	}
	taken := err == nil && r.awaitAcknowledgement()
	stop()
	switch cause := context.Cause(r.ctx); {
	case taken:
		r.owner.Detach()
		return nil
	case err == nil:
		// It was sent and may not have arrived: it is kept for the grace.
		r.owner.Lost()
		return nil
	case errors.Is(cause, errDetached):
		// The receiver does it too, and may be later: whoever is told that it
		// was done must find it done.
		r.owner.Detach()
		return nil
	case cause != nil && !errors.Is(cause, errRunOver):
		// The client is gone, or broke the rules; it may come back and follow
		// them. The log may say only that its reader was closed for that.
		r.owner.Lost()
		return cause
	default:
		r.owner.Lost()
		return err
	}
}

// acknowledgementTimeout is how long a stream on which everything was sent waits
// for the client to say that it has it.
const acknowledgementTimeout = time.Second

// awaitAcknowledgement blocks until the client has acknowledged the last event,
// and reports whether it has. Without it nobody knows that what was sent has
// arrived, and the record would be forgotten as if it had.
func (r *run) awaitAcknowledgement() bool {
	timeout := time.NewTimer(acknowledgementTimeout)
	defer timeout.Stop()
	for {
		if r.owner.Taken() {
			return true
		}
		select {
		case <-r.acknowledged:
		case <-timeout.C:
			return false
		case <-r.ctx.Done():
			return false
		}
	}
}

// leave settles the ownership as soon as it is known that the client is gone or
// has given it up. The handler may be stuck in sending to a client that does
// not read, and must not hold the process up.
func (r *run) leave(err error) {
	r.cancel(err)
	if errors.Is(err, errDetached) {
		r.owner.Detach()
		return
	}
	r.owner.Lost()
}

// startWorkers starts the goroutines that the handler owns; the returned
// function ends them and waits.
func (r *run) startWorkers() (stop func()) {
	done := make(chan struct{}, 2)
	go func() { r.writeInput(); done <- struct{}{} }()
	go func() { r.outbox.run(r.ctx); done <- struct{}{} }()
	return func() {
		r.cancel(errRunOver)
		<-done
		<-done
	}
}

// sendFreed sends events that nobody acknowledges.
func (r *run) sendFreed(events []*execwirev1.ProcessEvent) error {
	err := r.outbox.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{
		Events: &execwirev1.RunEvents{Events: events}}})
	if seq := lastSeq(events); err == nil && seq != 0 {
		r.lastSent.Store(seq)
	}
	return err
}

func (r *run) sendEvents(events []*execwirev1.ProcessEvent) error {
	if err := r.sendFreed(events); err != nil {
		return err
	}
	select {
	case <-r.noAcks:
		return r.owner.Acknowledge(lastSeq(events))
	default:
		return nil
	}
}
