package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/session"
)

// runStream is the server's side of a RunProcess stream type.
type runStream = grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// errDetached ends a run whose owner has detached. It is no error of the call.
var errDetached = errors.New("the owner detached")

// errRunEnded is the cause of a run's context after its end.
var errRunEnded = errors.New("the run is over")

// RunProcess implements the RPC. The handler sends events; other goroutines receive,
// write stdin and send answers, so that none waits for another: a client that stops
// reading can still signal, and a process that stops reading is still delivered.
func (s *processService) RunProcess(stream runStream) error {
	first, err := receiveFirst(stream, "the stream ended before start or resume")
	if err != nil {
		return err
	}
	run, err := s.openRun(stream, first)
	if err != nil {
		return err
	}
	return run.serve()
}

// openRun starts or finds the process and takes the ownership.
func (s *processService) openRun(stream runStream, first *execwirev1.RunProcessRequest) (*run, error) {
	switch m := first.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		const prefix = "start.process."
		start, err := s.prepare(stream.Context(), prefix, m.Start.GetProcess())
		if err != nil {
			return nil, err
		}
		owner, created, err := start.session.StartOwned(stream.Context(), start.id, start.digest, start.spec, optionalDuration(m.Start.GetGrace()))
		if err != nil {
			return nil, qualifyField(prefix, m.Start.GetProcess().GetCommand(), err)
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

// run is a RunProcess stream and the process it owns.
type run struct {
	server  *Server
	process *session.Process
	owner   *session.Ownership
	stream  runStream
	outbox  *outbox[execwirev1.RunProcessResponse]
	input   *inputQueue
	// lastSent is the seq of the last event that was sent, or that the client had
	// before.
	lastSent atomic.Uint64

	// ctx ends with the stream or the run; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// clientDone is closed when the client has half-closed: from then on sent
	// events count as acknowledged.
	clientDone chan struct{}
	// acknowledged is set by an acknowledgement.
	acknowledged notify.Signal
	// terminations limits the running terminations.
	terminations *semaphore.Weighted
}

func (s *processService) newRun(stream runStream, owner *session.Ownership, afterSeq uint64, resumed bool) (*run, error) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	r := &run{
		server: s.server, process: owner.Process(), owner: owner, stream: stream,
		outbox: newOutbox(stream), input: newInputQueue(s.server.cfg.Limits.GetStdinQueueBytes(), int(s.server.cfg.Limits.GetStdinWriteBytes())),
		ctx: ctx, cancel: cancel, clientDone: make(chan struct{}), acknowledged: notify.NewSignal(),
		terminations: semaphore.NewWeighted(maxTerminations),
	}
	r.lastSent.Store(afterSeq)
	if err := r.outbox.send(r.started(resumed)); err != nil {
		cancel(errRunEnded)
		owner.Lost()
		return nil, err
	}
	return r, nil
}

func (r *run) started(resumed bool) *execwirev1.RunProcessResponse {
	offset := r.process.StdinOffset()
	r.input.begin(offset)
	output := r.process.Log().Limits() // a start may lower them
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: &execwirev1.RunStarted{
		Process:            toProcess(r.process),
		Resumed:            resumed,
		StdinOffset:        offset,
		StdinWindowBytes:   r.server.cfg.Limits.GetStdinQueueBytes(),
		OutputWindowBytes:  uint64(output.WindowBytes),
		OutputWindowEvents: uint64(output.RetainedEvents),
		InstanceId:         r.server.instance,
	}}}
}

// serve runs the stream to its end, and ends the ownership according to how the
// stream ended.
func (r *run) serve() error {
	// Recv returns only after the handler, so the server waits for this goroutine,
	// not the handler.
	r.server.receivers.Go(r.receive)
	r.outbox.startPosting()
	var writing sync.WaitGroup
	writing.Go(r.writeInput)
	err := forward(r.ctx, r.process, r.owner, r.sendEvents)
	taken := err == nil && r.awaitAcknowledgement()
	r.cancel(errRunEnded)
	writing.Wait()
	r.outbox.stopPosting()
	cause := context.Cause(r.ctx)
	if taken || errors.Is(cause, errDetached) {
		// The receiver detaches too, perhaps later: the call must not end before the
		// ownership.
		r.owner.Detach()
		return nil
	}
	// If there is no error, the end was sent but may not have arrived: the process is
	// kept for the grace.
	r.owner.Lost()
	if err != nil && !errors.Is(cause, errRunEnded) {
		// The client is gone, or broke the protocol; it may resume. The error of the log
		// may only be the consequence.
		return cause
	}
	return err
}

// acknowledgementTimeout is how long a stream waits for the acknowledgement of the
// last event.
const acknowledgementTimeout = time.Second

// awaitAcknowledgement blocks until the client has acknowledged the last event, and
// reports whether it has. Without the acknowledgement the end may not have arrived,
// and the record must be kept.
func (r *run) awaitAcknowledgement() bool {
	timeout := time.NewTimer(acknowledgementTimeout)
	defer timeout.Stop()
	for {
		if r.owner.AllAcknowledged() {
			return true
		}
		select {
		case <-r.acknowledged.C():
		case <-timeout.C:
			return false
		case <-r.ctx.Done():
			return false
		}
	}
}

// release ends the ownership as soon as the client is gone or has detached. The
// handler may be blocked in sending to a client that does not read, and must not
// block the process.
func (r *run) release(err error) {
	r.cancel(err)
	if errors.Is(err, errDetached) {
		r.owner.Detach()
		return
	}
	r.owner.Lost()
}

func (r *run) sendEvents(events []*execwirev1.ProcessEvent) error {
	if err := r.outbox.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{
		Events: &execwirev1.RunEvents{Events: events}}}); err != nil {
		return err
	}
	last := lastSeq(events)
	if last != 0 {
		r.lastSent.Store(last)
	}
	select {
	case <-r.clientDone:
		return r.owner.Acknowledge(last)
	default:
		return nil
	}
}
