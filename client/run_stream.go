package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client/internal/outputcodec"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type runStream = grpc.BidiStreamingClient[execwirev1.RunProcessRequest, execwirev1.RunProcessResponse]

// attempt follows the process over one stream. It returns nil when the process has
// closed, and acknowledges that; otherwise the stream has ended. Only awaitStreamEnd
// continues after it returns.
func (r *run) attempt(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			cancel(errStreamOver)
		}
	}()
	var options []grpc.CallOption
	if r.feed == nil { // writers are done with output when they return
		options = append(options, grpc.ForceCodecV2(outputcodec.New()))
	}
	stream, err := r.client.processes.RunProcess(ctx, options...)
	if err != nil {
		return FromRPC(err)
	}
	started, err := r.open(stream)
	if err != nil {
		return err
	}
	if !r.started {
		r.stdin.begin(started, r.existing)
	}
	if err := r.stdin.resume(started.GetStdinOffset(), started.GetStdinWindowBytes()); err != nil {
		return err
	}
	r.acks.resume(started.GetOutputWindowBytes(), started.GetOutputWindowEvents())
	if r.existing {
		r.events.setInitialState(started.GetProcess())
	}
	r.conn.instance = started.GetInstanceId()
	r.setConnected(started.GetProcess())

	err = r.client.life.converse(ctx, cancel, func(ctx context.Context) { r.send(ctx, stream) }, func() error {
		err := r.receive(stream)
		if err == nil {
			r.awaitStreamEnd(stream)
		}
		return err
	})
	if last := r.acknowledgement(); err == nil && last != nil {
		_ = stream.Send(last) // if it is lost, the server keeps the process for its grace period
	}
	return err
}

// awaitStreamEnd ends the streams of a closed process in the background, when the server
// has received the last acknowledgement. Waiting for that would take a seventh of the time
// of a short process.
func (r *run) awaitStreamEnd(stream runStream) {
	leave, err := r.client.life.enter()
	if err != nil {
		r.cancel(err)
		return
	}
	done := r.client.life.finishing.add()
	go func() {
		defer leave()
		defer done()
		timer := time.AfterFunc(endTimeout, func() { r.cancel(errStreamOver) })
		for err := error(nil); err == nil; {
			_, err = stream.Recv()
		}
		timer.Stop()
		r.cancel(errStreamOver)
	}()
}

// open sends the first message and returns the answer.
func (r *run) open(stream runStream) (*execwirev1.RunStarted, error) {
	// Connecting may have taken long, so check again.
	if r.startRetryExpired() {
		return nil, r.lostError(r.conn.lost)
	}
	if !r.sent() {
		r.sentAt = time.Now()
	}
	response, err := firstAnswer(stream, r.opening(), "the start was reported")
	if err != nil {
		return nil, err
	}
	started := response.GetStarted()
	if started == nil {
		return nil, protocolErrorf("the first message does not report the start")
	}
	return started, nil
}

// opening returns the first message of a stream: the same start until it was answered,
// then a resume after the last written event.
func (r *run) opening() *execwirev1.RunProcessRequest {
	if !r.started && !r.existing {
		if !r.conn.lostAt.IsZero() { // maybe at another run of the server
			r.start.Process.FirstSentAgo = durationpb.New(time.Since(r.sentAt))
		}
		return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: r.start}}
	}
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
		Resume: &execwirev1.RunResume{
			SessionId: r.start.GetProcess().GetSessionId(),
			ProcessId: r.start.GetProcess().GetProcessId(),
			AfterSeq:  r.resumeAfter(),
			Grace:     r.start.GetGrace(),

			InstanceId: r.conn.instance,
		},
	}}
}

// resumeAfter returns the seq after which the server resumes. Unconsumed events are
// sent again and skipped: they are not acknowledged, so that at most one window is
// buffered here.
func (r *run) resumeAfter() uint64 {
	r.repeated, r.resumedAt = r.events.last, r.events.last
	if r.feed != nil {
		r.resumedAt = r.feed.takenUpTo()
	}
	return r.resumedAt
}

// receive processes messages until the process has closed, for which it returns nil, or
// the stream ends.
func (r *run) receive(stream runStream) error {
	for !r.events.closed {
		response, err := stream.Recv()
		if err != nil {
			return r.ended(err)
		}
		switch m := response.GetMessage().(type) {
		case *execwirev1.RunProcessResponse_Events:
			err = r.take(m.Events.GetEvents())
		case *execwirev1.RunProcessResponse_StdinAccepted:
			err = r.stdin.accept(m.StdinAccepted.GetOffset(), m.StdinAccepted.GetEndOfFile())
		case *execwirev1.RunProcessResponse_Rejected:
			r.reject(m.Rejected)
		case *execwirev1.RunProcessResponse_Started:
			err = protocolErrorf("it reported the start twice on one stream")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ended translates the end of a stream before the process has closed.
func (r *run) ended(err error) error {
	switch {
	case errors.Is(err, io.EOF) && r.detached.Load():
		return ErrDetached
	case errors.Is(err, io.EOF):
		return protocolErrorf("the stream ended after seq %d without the closed event", r.events.last)
	default:
		return FromRPC(err)
	}
}

// take writes events and acknowledges them; with a feed, its readers acknowledge them.
func (r *run) take(events []*execwirev1.ProcessEvent) error {
	bytes, fresh := 0, 0
	for _, event := range events {
		if event = r.dropReceivedGap(event); event == nil {
			continue
		}
		last := r.events.last
		n, err := r.events.write(event)
		if err != nil {
			return err
		}
		if r.events.last == last {
			continue // already received
		}
		if err := r.acks.received(r.start.GetProcess().GetProcessId(), n, 1); err != nil {
			return err
		}
		if r.feed != nil {
			r.feed.add(event, r.events.last)
		}
		bytes, fresh = bytes+n, fresh+1
	}
	if fresh > 0 {
		r.conn.resetFailures()
		if r.feed == nil {
			r.acks.taken(r.start.GetProcess().GetProcessId(), r.events.last, bytes, fresh, r.events.closed)
		}
	}
	return nil
}

// dropReceivedGap returns an event, or nil for a gap among repeated events that was
// received before. A gap beyond those is marked inexact.
func (r *run) dropReceivedGap(event *execwirev1.ProcessEvent) *execwirev1.ProcessEvent {
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
