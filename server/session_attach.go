package server

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/auditcall"
)

// attachStream is the server's side of an AttachSession stream type.
type attachStream = grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]

var (
	// errHalfClosed ends an attachment whose client has half-closed. The call does
	// not fail; the lease is lost.
	errHalfClosed = errors.New("the client half-closed its side")
	// errAttachmentEnded is the cause of an attachment's context after its end.
	errAttachmentEnded = errors.New("the attachment is over")
)

// AttachSession implements the RPC. The handler sends the feed; one goroutine
// receives and another sends pings, so that a client that stops reading can still
// acknowledge, and its loss is noticed at once.
func (s *sessionService) AttachSession(stream attachStream) error {
	first, err := receiveFirst(stream, "the stream ended before attach")
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

// attachment is an AttachSession stream and its lease.
type attachment struct {
	server   *Server
	lease    *session.Attachment
	stream   attachStream
	outbox   *outbox[execwirev1.AttachSessionResponse]
	lastPing atomic.Uint64 // the nonce of the last ping

	// ctx ends with the stream or the attachment; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// attach takes the lease and confirms it.
func (s *sessionService) attach(stream attachStream, m *execwirev1.SessionAttach) (*attachment, error) {
	principal := caller(stream.Context())
	a := &attachment{server: s.server, stream: stream, outbox: newOutbox(stream)}
	var err error
	a.lease, err = s.server.cfg.Sessions.Attach(stream.Context(), principal, session.AttachRequest{
		SessionID:    m.GetSessionId(),
		AfterSeq:     m.GetAfterSeq(),
		Grace:        optionalDuration(m.GetGrace()),
		WhenDetached: whenDetached[m.GetWhenDetached()],
		MaxProcesses: int(m.GetMaxProcesses()),
		Ping:         a.ping,
		Borrow:       borrowing(stream.Context()),
	})
	if err != nil {
		return nil, err
	}
	auditcall.Annotate(stream.Context(), func(r *audit.Record) { r.TookOver = a.lease.TookOver() })
	if err := a.outbox.send(a.attached(principal)); err != nil {
		a.lease.Lost()
		return nil, err
	}
	a.ctx, a.cancel = context.WithCancelCause(stream.Context())
	return a, nil
}

// borrowing returns how the events of an attachment are borrowed; nil: its caller is in this
// program, and keeps them for as long as it likes.
func borrowing(ctx context.Context) func(*eventlog.Owner) {
	if !isLocal(ctx) {
		return (*eventlog.Owner).Borrow // sending encodes
	}
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ HandsBackAcknowledged() bool })
	if ok && stream.HandsBackAcknowledged() {
		return (*eventlog.Owner).BorrowUntilAcknowledged
	}
	return nil
}

func (a *attachment) attached(principal string) *execwirev1.AttachSessionResponse {
	return &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Attached{Attached: &execwirev1.SessionAttached{
		Session:            toSession(a.lease.Session().Info(principal)),
		Resumed:            a.lease.Resumed(),
		OutputWindowBytes:  a.server.limits().GetWindowBytes(),
		OutputWindowEvents: a.server.limits().GetRetainedEvents(),
		InstanceId:         a.server.instance,
	}}}
}

// ping sends a ping to the client. On a blocked stream it is queued and not answered.
func (a *attachment) ping() {
	a.outbox.postLatest(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Ping{
		Ping: &execwirev1.SessionPing{Nonce: a.lastPing.Add(1)}}})
}

// serve runs the stream to its end, and ends the lease according to how the stream
// ended.
func (a *attachment) serve() error {
	// Recv returns only after the handler, so the server waits for this goroutine,
	// not the handler.
	a.server.receivers.Go(a.receive)
	a.outbox.startPosting()
	err := a.forward()
	a.cancel(errAttachmentEnded)
	a.outbox.stopPosting()
	a.lease.Lost() // unless the receiver has ended it
	switch cause := context.Cause(a.ctx); {
	case errors.Is(cause, errDetached), errors.Is(cause, errHalfClosed):
		return nil
	case errors.Is(cause, errAttachmentEnded):
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

// receive handles the client's messages until the stream ends. It only blocks on the
// stream. The lease ends as soon as the client is gone or has detached: the handler may
// be blocked in sending to a client that does not read, and must not delay the grace.
func (a *attachment) receive() {
	err := receiveRest(a.stream, a.handle)
	if errors.Is(err, io.EOF) {
		err = errHalfClosed
	}
	a.cancel(err)
	a.lease.Lost()
}

// handle handles one message, which counts as an answer to a ping. An error ends the
// stream.
func (a *attachment) handle(m *execwirev1.AttachSessionRequest) error {
	// Messages received after the stream was cut do not count as an answer: their sender
	// may be the client that attaches again.
	if a.stream.Context().Err() == nil {
		a.lease.Alive()
	}
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
