package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errStreamOver ends what belongs to one stream of a run.
var errStreamOver = errors.New("the stream is over")

type runStream = grpc.BidiStreamingClient[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// attempt follows the process over one stream. It returns nil when the process
// has closed. What it started is over when it returns.
func (r *run) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	stream, err := r.client.processes.RunProcess(ctx)
	if err != nil {
		return FromRPC(err)
	}
	started, err := r.open(stream)
	if err != nil {
		return err
	}
	if !r.link.started {
		r.meetInput(started)
	}
	if err := r.stdin.resume(started.GetStdinOffset(), started.GetStdinWindowBytes()); err != nil {
		return err
	}
	r.acks.resume(started.GetOutputWindowBytes(), started.GetOutputWindowEvents())
	if r.feed != nil {
		r.feed.resumed()
	}
	if r.found {
		r.events.meet(started.GetProcess())
	}
	r.link.instance = started.GetInstanceId()
	r.regain(started.GetProcess())

	var sender sync.WaitGroup
	sender.Go(func() { r.send(ctx, stream) })
	stop := r.client.life.endInSilence(cancel)
	err = orSilence(ctx, r.receive(stream))
	stop()
	cancel(errStreamOver)
	sender.Wait()
	return err
}

// meetInput prepares the input for what the process took of it, or of other
// input, before this run's first stream.
func (r *run) meetInput(started *execwirev1.RunStarted) {
	switch {
	case r.found:
		r.stdin.join(started.GetStdinOffset(), started.GetProcess().GetHasTerminal())
	case started.GetResumed():
		r.stdin.repeat()
	}
}

// open says what the stream is for and returns the answer.
func (r *run) open(stream runStream) (*execwirev1.RunStarted, error) {
	// Reaching the server may have taken long, so this is asked here too.
	if r.repeatIsLate() {
		return nil, r.lostError(r.link.lost)
	}
	if !r.link.sent() {
		r.link.sentAt = time.Now()
	}
	// A failed Send says nothing; the Recv after it tells why.
	if err := stream.Send(r.opening()); err != nil && !errors.Is(err, io.EOF) {
		return nil, FromRPC(err)
	}
	response, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, protocolErrorf("the stream ended before it said that the process runs")
	}
	if err != nil {
		return nil, FromRPC(err)
	}
	started := response.GetStarted()
	if started == nil {
		return nil, protocolErrorf("the first answer was not that the process runs")
	}
	return started, nil
}

// opening is the first message of a stream: the same start until it was
// answered, then a resume from what was written.
func (r *run) opening() *execwirev1.RunProcessRequest {
	if !r.link.started && !r.found {
		return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: r.start}}
	}
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
		Resume: &execwirev1.RunResume{
			SessionId: r.start.GetProcess().GetSessionId(),
			ProcessId: r.start.GetProcess().GetProcessId(),
			AfterSeq:  r.resumeAfter(),
			Grace:     r.start.GetGrace(),

			InstanceId: r.link.instance,
		},
	}}
}

// resumeAfter returns what this end need not be told again. What nobody has taken is
// told again, and passed over: it is not acknowledged, so that what is held here
// stays within one window.
func (r *run) resumeAfter() uint64 {
	r.repeated, r.resumedAt = r.events.last, r.events.last
	if r.feed != nil {
		r.resumedAt = r.feed.takenUpTo()
	}
	return r.resumedAt
}

// receive takes what the server says until the stream ends, which is nil when
// the process has closed.
func (r *run) receive(stream runStream) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			return r.ended(err)
		}
		switch m := response.GetMessage().(type) {
		case *execwirev1.RunProcessResponse_Events:
			err = r.take(m.Events.GetEvents(), stream.Context().Done())
		case *execwirev1.RunProcessResponse_StdinAccepted:
			err = r.stdin.accept(m.StdinAccepted.GetOffset(), m.StdinAccepted.GetEndOfFile())
		case *execwirev1.RunProcessResponse_Rejected:
			r.reject(m.Rejected)
		case *execwirev1.RunProcessResponse_Started:
			err = protocolErrorf("it said twice on one stream that the process runs")
		}
		if err != nil {
			return err
		}
	}
}

// ended translates the end of a stream. Once the process has closed, nothing
// more can be learned from it.
func (r *run) ended(err error) error {
	switch {
	case r.events.closed:
		return nil
	case errors.Is(err, io.EOF) && r.detached.Load():
		return ErrDetached
	case errors.Is(err, io.EOF):
		return protocolErrorf("the stream ended after seq %d without saying that the process closed", r.events.last)
	default:
		return FromRPC(err)
	}
}

// take writes events and acknowledges them, or leaves that to those who read them
// from the feed; done ends the waiting for room there.
func (r *run) take(events []*execwirev1.ProcessEvent, done <-chan struct{}) error {
	before, bytes := r.events.last, 0
	for _, event := range events {
		if event = r.unknown(event); event == nil {
			continue
		}
		last := r.events.last
		n, err := r.events.write(event)
		if err != nil {
			return err
		}
		bytes += n
		if r.feed != nil && r.events.last != last {
			r.feed.add(event, r.events.last, done)
		}
	}
	if taken := r.events.last - before; taken > 0 {
		r.progress()
		if r.feed == nil {
			r.acks.taken(r.events.last, bytes, int(taken), r.events.closed)
		}
	}
	return nil
}

// unknown returns an event, or nil for a gap in what is told again and was received
// before. One that goes beyond that tells more than is missing.
func (r *run) unknown(event *execwirev1.ProcessEvent) *execwirev1.ProcessEvent {
	gap := event.GetGap()
	if gap == nil || r.repeated == r.resumedAt || r.events.last != r.repeated {
		return event
	}
	if gap.GetFirstAvailableSeq() <= r.repeated+1 {
		return nil
	}
	event = proto.CloneOf(event)
	event.GetGap().UpperBound = true
	return event
}

func (r *run) reject(rejected *execwirev1.RunRejected) {
	switch rejected.GetReason() {
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED:
		r.stdin.discard()
	}
	if r.options.OnRejected != nil {
		r.options.OnRejected(rejected)
	}
}
