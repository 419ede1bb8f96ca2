package execserver

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type runStream = grpc.BidiStreamingServer[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// run is one RunProcess stream.
type run struct {
	service *processService
	stream  runStream
	link    *link
	process *process
	feed    *feed
	grace   *durationpb.Duration
	resumed bool

	// ctx ends with the stream, also because of what the owner said.
	ctx context.Context
	end context.CancelCauseFunc

	pump    stdinPump
	tasks   sync.WaitGroup // what the owner asked for, and is being done
	sending sync.Mutex     // of whoever sends on the stream

	mu       sync.Mutex
	over     bool   // guarded by mu; nothing more is begun
	told     uint64 // guarded by mu; the last seq that was sent
	takesAll bool   // guarded by mu; the owner acknowledges no more: what was sent is taken
}

// errDetached ends a run whose owner gave the process up.
var errDetached = errors.New("the owner gave the process up")

// RunProcess implements the RPC.
func (s *processService) RunProcess(stream runStream) error {
	l, err := s.conn.current(stream.Context())
	if err != nil {
		return err
	}
	r := &run{service: s, stream: stream, link: l}
	r.ctx, r.end = context.WithCancelCause(stream.Context())
	defer r.end(nil)
	if err := r.open(); err != nil {
		return err
	}
	defer r.feed.leave()
	if err := r.pump.begin(r); err != nil {
		r.process.abandon(r.feed, r.grace)
		return err
	}
	// What the client says is read until the stream ends, which is when this returns.
	s.conn.tasks.Go(r.listen)
	err = r.follow()
	if cause := context.Cause(r.ctx); err != nil && cause != nil && stream.Context().Err() == nil {
		err = cause
	}
	r.finish(err)
	switch {
	case err == nil:
		r.process.disown(r.feed)
	case errors.Is(err, errDetached):
		r.process.disown(r.feed)
		return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
			"a process cannot be left behind over the exec-server protocol, where it ends with the connection: reach the server over gRPC")
	default:
		r.process.abandon(r.feed, r.grace)
	}
	return err
}

// finish waits until nothing is done any more for the stream.
func (r *run) finish(err error) {
	r.end(err)
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.pump.wait()
	r.tasks.Wait()
}

// open starts the process or takes it up, and says so.
func (r *run) open() error {
	request, err := r.stream.Recv()
	if errors.Is(err, io.EOF) {
		return unexpectedMessage("the stream ended before it began: send start or resume")
	}
	if err != nil {
		return err
	}
	switch m := request.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		r.grace = m.Start.GetGrace()
		return r.start(m.Start.GetProcess())
	case *execwirev1.RunProcessRequest_Resume:
		r.grace = m.Resume.GetGrace()
		return r.resume(m.Resume)
	}
	return unexpectedMessage("the first message must be start or resume")
}

func unexpectedMessage(text string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, "%s", text)
}

func (r *run) start(request *execwirev1.StartProcessRequest) error {
	begin := func(p *process) {
		r.process = p
		r.feed = p.join(r.link, 0, p.wasTried(), true)
		p.own(r.feed)
	}
	p, resumed, err := r.service.start(r.ctx, request, begin)
	if err != nil {
		if r.feed != nil {
			r.notStarted(err)
		}
		return within("start.process", err)
	}
	if r.resumed = resumed; resumed {
		r.process, r.feed = p, p.join(r.link, 0, true, true)
		p.own(r.feed)
	}
	return nil
}

// notStarted gives up a process whose start failed, or was not answered: then it may
// run.
func (r *run) notStarted(err error) {
	if isUnanswered(err) {
		r.process.abandon(r.feed, r.grace)
	} else {
		r.process.disown(r.feed)
	}
	r.feed.leave()
}

func (r *run) resume(request *execwirev1.RunResume) error {
	if err := r.service.checkSession(request.GetSessionId()); err != nil {
		return err
	}
	p, err := r.service.find(request.GetProcessId())
	if err != nil {
		return err
	}
	r.process, r.resumed = p, true
	r.feed = p.join(r.link, request.GetAfterSeq(), true, true)
	r.told = request.GetAfterSeq()
	p.own(r.feed)
	return nil
}

// opened tells the owner that it owns the process. The caller has begun the pump.
func (r *run) opened(stdinOffset uint64) error {
	started := &execwirev1.RunStarted{
		Process: r.process.describe(), Resumed: r.resumed, StdinOffset: stdinOffset, StdinWindowBytes: stdinWindow,
		OutputWindowBytes: uint64(r.service.conn.options.QueueBytes),
	}
	if r.link.peer.acknowledges {
		started.OutputWindowBytes, started.OutputWindowEvents = r.link.peer.windowBytes, r.link.peer.windowEvents
	}
	if r.told > 0 { // which the owner has
		r.taken(r.told)
	}
	return r.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: started}})
}

// follow sends events until the process has closed.
func (r *run) follow() error {
	for {
		events, err := r.feed.next(r.ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		last := r.feed.cursor
		closed := events[len(events)-1].GetClosed() != nil
		r.mu.Lock()
		r.told = last
		takesAll := r.takesAll || closed
		r.mu.Unlock()
		message := &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{
			Events: &execwirev1.RunEvents{Events: events}}}
		if err := r.send(message); err != nil {
			return err
		}
		if takesAll {
			r.taken(last)
		}
		if closed {
			return nil
		}
	}
}

// taken has the server told what the owner has.
func (r *run) taken(seq uint64) {
	r.process.mu.Lock()
	defer r.process.mu.Unlock()
	r.process.acknowledge(seq)
}

func (r *run) send(m *execwirev1.RunProcessResponse) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.stream.Send(m)
}

// reject tells the owner that something was not done.
func (r *run) reject(err error) {
	_ = r.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{
		Rejected: &execwirev1.RunRejected{Reason: reasonOf(err), Message: messageOf(err)}}})
	// A stream that is over needs no answers.
}
