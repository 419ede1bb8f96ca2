package execserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/errorinfo"
)

// run is one RunProcess stream. One goroutine sends on it and one receives.
type run struct {
	service *processService
	stream  grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]
	link    *link
	process *process
	grace   *durationpb.Duration

	// ctx ends with the stream, or with the error of a request as its cause.
	ctx context.Context
	end context.CancelCauseFunc

	// Guarded by process.mu.
	sent        uint64                           // the number of the last event sent
	stdinOffset uint64                           // that was reported as accepted
	stdinEnded  bool                             // that was reported
	rejections  []*execwirev1.RunProcessResponse // to be sent
}

// RunProcess implements ProcessServiceServer.
func (s *processService) RunProcess(stream grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]) error {
	r := &run{service: s, stream: stream}
	r.ctx, r.end = context.WithCancelCause(stream.Context())
	defer r.end(nil)
	err := r.open()
	if err == nil {
		s.conn.tasks.Go(r.receive) // until the stream ends, which is after the return
		err = r.send()
	}
	if r.process != nil {
		r.release(err)
	}
	return err
}

// open starts or resumes the process, and sends the first message.
func (r *run) open() error {
	request, err := r.stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if r.link, err = r.service.conn.current(r.ctx); err != nil {
		return err
	}
	resumed := true
	switch m := request.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		r.grace = m.Start.GetGrace()
		if resumed, err = r.service.start(r.ctx, r.link, m.Start.GetProcess(), r); err != nil {
			return within("start.process", err)
		}
	case *execwirev1.RunProcessRequest_Resume:
		r.grace = m.Resume.GetGrace()
		p, _, err := r.service.find(r.ctx, m.Resume)
		if err != nil {
			return err
		}
		if err := p.checkReached(m.Resume.GetAfterSeq()); err != nil {
			return err
		}
		r.own(p, m.Resume.GetAfterSeq())
	default:
		return unexpectedMessage("the first message must be start or resume")
	}
	return r.stream.Send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: &execwirev1.RunStarted{
		Process: r.process.describe(), Resumed: resumed,
		StdinOffset: r.stdinOffset, StdinWindowBytes: stdinWindow, OutputWindowBytes: windowBytes, OutputWindowEvents: windowEvents}}})
}

func unexpectedMessage(text string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, "%s", text)
}

// checkReached rejects a number that no event has yet.
func (p *process) checkReached(number uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number <= p.log.last {
		return nil
	}
	return failure(execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED,
		"seq %d of process %s is not reached: its last event is %d", number, p.id, p.log.last)
}

// own makes the stream the owner of a process, from the events after a number on.
func (r *run) own(p *process, after uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.process, r.sent, r.stdinOffset = p, after, p.stdin.queued()
	p.owner, p.abandoned = r, false
	p.owners++
	p.acknowledge(after)
}

// release ends the ownership. After an error the process is terminated unless it is
// owned again within the grace period.
func (r *run) release(err error) {
	p := r.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner != r {
		return
	}
	p.owner, p.endedAt = nil, time.Now()
	p.changed.Notify()
	switch {
	case err == nil:
		p.log.discard() // all was sent
	case !errors.Is(err, errOwnerless) && !p.log.closed && (p.started || isUnanswered(err)):
		generation := p.owners
		p.conn.tasks.Go(func() { p.terminateAbandoned(r.grace, generation) })
	}
}

// defaultGrace is the grace period of an owner that chose none.
const defaultGrace = 30 * time.Second

// terminateAbandoned terminates the process after the grace period, unless it has had
// another owner.
func (p *process) terminateAbandoned(chosen *durationpb.Duration, generation int) {
	grace := defaultGrace
	if chosen != nil {
		grace = max(chosen.AsDuration(), 0)
	}
	var wait backoff.Backoff
	for more := backoff.Pause(p.conn.ctx, grace); more; more = wait.Wait(p.conn.ctx, 0) {
		p.mu.Lock()
		isOver := p.owners != generation || p.log.closed
		if !isOver {
			p.killed, p.abandoned = true, true
			p.log.discard() // so that what follows is received, up to the close
			p.changed.Notify()
		}
		p.mu.Unlock()
		if isOver {
			return
		}
		l, err := p.conn.current(p.conn.ctx)
		if err == nil {
			err = p.conn.control(p.conn.ctx, l, "process/terminate", processParams{p.id}, nil)
		}
		if !isUnanswered(err) {
			return
		}
	}
}

// send sends responses until the process has closed, for which it returns nil.
func (r *run) send() error {
	p := r.process
	for {
		p.mu.Lock()
		responses, closed, err := r.next()
		changed := p.changed.Wait()
		p.mu.Unlock()
		for _, response := range responses {
			if err := r.stream.Send(response); err != nil {
				return err
			}
		}
		switch {
		case closed:
			return nil
		case len(responses) > 0:
			continue
		case err != nil:
			return err
		}
		if err := awaitChange(r.ctx, r.link, changed); err != nil {
			return err
		}
	}
}

// next returns what is to be sent, whether that ends with the close, and why no more
// will follow, if so. The caller holds process.mu.
func (r *run) next() (responses []*execwirev1.RunProcessResponse, closed bool, err error) {
	p := r.process
	if p.owner != r {
		return nil, false, failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER,
			"another stream took over the ownership of process %s", p.id)
	}
	responses, r.rejections = r.rejections, nil
	if s := &p.stdin; s.accepted > r.stdinOffset || s.endAccepted && !r.stdinEnded {
		r.stdinOffset, r.stdinEnded = max(r.stdinOffset, s.accepted), s.endAccepted
		responses = append(responses, &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
			StdinAccepted: &execwirev1.RunStdinAccepted{Offset: r.stdinOffset, EndOfFile: r.stdinEnded}}})
	}
	if r.sent < p.log.evicted+windowEvents {
		if events := p.log.next(&r.sent); len(events) > 0 {
			responses = append(responses, &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{
				Events: &execwirev1.RunEvents{Events: events}}})
		}
	}
	if r.sent == p.log.last {
		err = cmp.Or(p.failed, p.stdin.failed)
	}
	return responses, p.log.isEnd(r.sent), err
}

// receive handles requests until the stream ends.
func (r *run) receive() {
	for {
		request, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			r.process.stdin.end()
			return
		case err == nil:
			err = r.handle(request)
		}
		if err != nil {
			r.end(err)
			return
		}
	}
}

// handle handles one request. An error ends the stream.
func (r *run) handle(request *execwirev1.RunProcessRequest) error {
	switch m := request.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Stdin:
		return r.takeStdin(m.Stdin)
	case *execwirev1.RunProcessRequest_Acknowledge:
		if err := r.process.checkReached(m.Acknowledge.GetSeq()); err != nil {
			return err
		}
		r.acknowledge(m.Acknowledge.GetSeq())
	case *execwirev1.RunProcessRequest_Resize:
		r.do(func() error { return r.service.resize(r.ctx, r.link, r.process, m.Resize) })
	case *execwirev1.RunProcessRequest_Signal:
		r.do(func() error {
			return r.service.signal(r.ctx, r.link, r.process, m.Signal.GetSignal(), m.Signal.GetTarget())
		})
	case *execwirev1.RunProcessRequest_Terminate:
		r.do(func() error {
			_, err := r.service.terminate(r.ctx, r.link, r.process, m.Terminate)
			return err
		})
	case *execwirev1.RunProcessRequest_Detach:
		return errOwnerless
	case *execwirev1.RunProcessRequest_Start, *execwirev1.RunProcessRequest_Resume:
		return unexpectedMessage("a process is owned by this stream already")
	default:
		return invalidField("message", "is not known")
	}
	return nil
}

// acknowledge drops consumed events, unless another stream owns the process.
func (r *run) acknowledge(number uint64) {
	r.process.mu.Lock()
	defer r.process.mu.Unlock()
	if r.process.owner == r {
		r.process.acknowledge(number)
	}
}

// do makes a request without blocking the stream, and reports its rejection.
func (r *run) do(request func() error) {
	r.service.conn.tasks.Go(func() {
		if err := request(); err != nil && r.ctx.Err() == nil && !isUnanswered(err) {
			r.process.reject(err)
		}
	})
}

// reject reports to the owner that a request was rejected.
func (p *process) reject(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner != nil {
		p.owner.rejections = append(p.owner.rejections, &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{
			Rejected: &execwirev1.RunRejected{Reason: errorinfo.Reason(err), Message: status.Convert(err).Message()}}})
		p.changed.Notify()
	}
}
