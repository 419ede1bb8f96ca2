package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
	if first.GetStart() == nil && first.GetResume() == nil {
		return unexpectedMessage("the first message must be start or resume")
	}
	owner, resumed, err := s.own(stream.Context(), first)
	if err != nil {
		return err
	}
	run, err := s.newRun(stream, owner, first.GetResume().GetAfterSeq(), resumed)
	if err != nil {
		return err
	}
	return run.serve()
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

	// ctx ends with the stream, the ownership or the run; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// impliesAcknowledge is whether sent events count as acknowledged, because no
	// acknowledgement of the client can be received.
	impliesAcknowledge atomic.Bool
	// terminations limits the running terminations.
	terminations *semaphore.Weighted
}

// newRun confirms the ownership to the client.
func (s *processService) newRun(stream runStream, owner *session.Ownership, afterSeq uint64, resumed bool) (*run, error) {
	r := &run{
		server: s.server, process: owner.Process(), owner: owner, stream: stream,
		outbox: newOutbox(stream), input: newInputQueue(s.server.limits().GetStdinQueueBytes(), int(s.server.limits().GetStdinWriteBytes())),
		terminations: semaphore.NewWeighted(maxTerminations),
	}
	r.ctx, r.cancel = context.WithCancelCause(owner.Context())
	r.lastSent.Store(afterSeq)
	started := s.server.started(owner, resumed)
	r.input.begin(started.GetStdinOffset())
	if err := r.outbox.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: started}}); err != nil {
		r.release(err)
		return nil, err
	}
	return r, nil
}

// serve runs the stream to its end.
func (r *run) serve() error {
	// Recv returns only after the handler, so the server waits for this goroutine,
	// not the handler.
	r.server.receivers.Go(r.receive)
	r.outbox.startPosting()
	var writing sync.WaitGroup
	writing.Go(r.writeInput)
	err := serveOwner(r.ctx, r.owner, r.sendEvents)
	r.cancel(errRunEnded)
	writing.Wait()
	r.outbox.stopPosting()
	return err
}

// release ends the ownership as soon as the client is gone. The handler may be blocked
// in sending to a client that does not read, and must not block the process.
func (r *run) release(err error) {
	r.cancel(err)
	r.owner.Lost() // unless it has detached
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
	if r.impliesAcknowledge.Load() {
		return r.owner.Acknowledge(last)
	}
	return nil
}
