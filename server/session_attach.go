package server

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/session"
)

// attachStream is the server's side of an AttachSession stream type.
type attachStream = grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]

var (
	// errHalfClosed ends an attachment whose client will say nothing more. The
	// call is no failure, but the session is as good as lost.
	errHalfClosed = errors.New("the client half-closed its side")
	// errAttachmentOver tells the parts of an attachment that it has ended.
	errAttachmentOver = errors.New("the attachment is over")
)

// AttachSession implements the RPC. The handler sends the feed; another goroutine
// receives, and one that is there only for that asks whether the client is, so
// that a client that stops reading can still acknowledge, and its loss is noticed
// at once.
func (s *sessionService) AttachSession(stream attachStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return unexpectedMessage("the stream ended before attach")
	}
	if err != nil {
		return err
	}
	if first.GetAttach() == nil {
		return unexpectedMessage("the first message must be attach")
	}
	a, err := s.attach(stream, first.GetAttach())
	if err != nil {
		return err
	}
	return a.serve()
}

// attachment is one AttachSession stream with the lease it holds.
type attachment struct {
	server *Server
	lease  *session.Attachment
	stream attachStream
	outbox *outbox[execwirev1.AttachSessionResponse]
	pings  atomic.Uint64 // the nonce of the last one

	// ctx ends when the stream does, or the attachment: its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// attach takes the lease and says so.
func (s *sessionService) attach(stream attachStream, m *execwirev1.SessionAttach) (*attachment, error) {
	principal, err := caller(stream.Context())
	if err != nil {
		return nil, err
	}
	a := &attachment{server: s.server, stream: stream, outbox: newOutbox(stream)}
	a.lease, err = s.server.cfg.Sessions.Attach(stream.Context(), principal, session.AttachRequest{
		SessionID:    m.GetSessionId(),
		AfterSeq:     m.GetAfterSeq(),
		Grace:        optionalDuration(m.GetGrace()),
		WhenDetached: whenDetached[m.GetWhenDetached()],
		MaxProcesses: int(m.GetMaxProcesses()),
		Ping:         a.ping,
	})
	if err != nil {
		return nil, err
	}
	if err := a.outbox.send(a.attached(principal)); err != nil {
		a.lease.Lost()
		return nil, err
	}
	a.ctx, a.cancel = context.WithCancelCause(stream.Context())
	return a, nil
}

func (a *attachment) attached(principal string) *execwirev1.AttachSessionResponse {
	return &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Attached{Attached: &execwirev1.SessionAttached{
		Session:            toSession(a.lease.Session().Info(principal)),
		Resumed:            a.lease.Resumed(),
		OutputWindowBytes:  uint64(a.server.cfg.Limits.window()),
		OutputWindowEvents: uint64(a.server.cfg.Limits.RetainedEvents),
		InstanceId:         a.server.instance,
	}}}
}

// ping asks the client whether it is there. If the stream is stuck the question
// waits there, and is not answered.
func (a *attachment) ping() {
	a.outbox.postLatest(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Ping{
		Ping: &execwirev1.SessionPing{Nonce: a.pings.Add(1)}}})
}

// serve runs the stream to its end and settles the lease by how it ended.
func (a *attachment) serve() error {
	// Recv returns only once this handler has, so the server waits for the
	// receiver, not the handler.
	a.server.receivers.Go(a.receive)
	a.outbox.begin()
	err := a.forward()
	a.cancel(errAttachmentOver)
	a.outbox.end()
	a.lease.Lost() // unless the receiver has settled it
	switch cause := context.Cause(a.ctx); {
	case errors.Is(cause, errDetached), errors.Is(cause, errHalfClosed):
		return nil
	case errors.Is(cause, errAttachmentOver):
		return err
	default:
		return cause
	}
}

// forward sends the feed until it ends, and returns why.
func (a *attachment) forward() error {
	most := messageBytes(a.ctx)
	for {
		delivery, err := a.lease.Next(a.ctx, most)
		if err != nil {
			return err
		}
		if err := a.outbox.send(toFeed(delivery)); err != nil {
			return err
		}
	}
}

func toFeed(d session.Delivery) *execwirev1.AttachSessionResponse {
	if d.Released != "" {
		return &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Released{
			Released: &execwirev1.SessionProcessReleased{ProcessId: d.Released}}}
	}
	return &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Events{
		Events: &execwirev1.SessionEvents{ProcessId: d.Process.ID(), Events: toEvents(d.Process, d.Batch)}}}
}

// receive takes the client's messages until the stream ends. It never blocks
// on anything but the stream. Whatever the client says shows that it is there.
func (a *attachment) receive() {
	for {
		m, err := a.stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errHalfClosed
		}
		if err == nil {
			// The last words of a stream that was cut are no sign of life: who
			// said them may be the one that attaches again.
			if a.stream.Context().Err() == nil {
				a.lease.Alive()
			}
			err = a.handle(m)
		}
		if err != nil {
			a.leave(err)
			return
		}
	}
}

// handle acts on one message. An error ends the stream.
func (a *attachment) handle(m *execwirev1.AttachSessionRequest) error {
	switch m := m.GetMessage().(type) {
	case *execwirev1.AttachSessionRequest_Acknowledge:
		return a.lease.Acknowledge(m.Acknowledge.GetProcessId(), m.Acknowledge.GetSeq())
	case *execwirev1.AttachSessionRequest_Detach:
		return errDetached
	case *execwirev1.AttachSessionRequest_Pong:
		return nil
	default:
		return unexpectedMessage("attach comes once, first")
	}
}

// leave settles the lease as soon as it is known that the client is gone or has
// given it up. The handler may be stuck in sending to a client that does not
// read, and must not hold the grace up.
func (a *attachment) leave(err error) {
	a.cancel(err)
	if errors.Is(err, errDetached) {
		a.lease.Detach()
		return
	}
	a.lease.Lost()
}
