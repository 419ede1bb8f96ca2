package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type sessionStream = grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]

// staleAttachmentTimeout is how long a server may consider a session attached because
// of data that this client sent on a lost stream.
const staleAttachmentTimeout = 10 * time.Second

// SessionLostError reports that the connection was lost and the session could not be
// attached again: it has ended, or will after its grace period.
type SessionLostError struct {
	// SessionID is the session.
	SessionID string
	// Lost is how long ago the connection was lost.
	Lost time.Duration
	// Restarted is whether the server was restarted, which ended the session and its
	// processes.
	Restarted bool
	// Err is the error of the last attempt.
	Err error
}

func (e *SessionLostError) Error() string {
	if e.Restarted {
		return fmt.Sprintf("the server was restarted; the session %s and its processes ended with it", e.SessionID)
	}
	return fmt.Sprintf("failed to attach session %s again for %s: %v", e.SessionID, e.Lost.Round(100*time.Millisecond), e.Err)
}

func (e *SessionLostError) Unwrap() error { return e.Err }

// Is reports whether target is ErrRestarted and the server was restarted.
func (e *SessionLostError) Is(target error) bool { return e.Restarted && target == ErrRestarted }

// follow attaches, one stream after the other, until the Session ends.
func (s *Session) follow(ctx context.Context) {
	defer close(s.over)
	defer context.AfterFunc(s.client.life.ctx, func() { s.cancel(s.client.life.over()) })()
	err := s.conn.resume(ctx, func(ctx context.Context) error {
		err := s.attempt(ctx)
		if errors.Is(err, io.EOF) && s.hasEnded() || s.isClosed(err) {
			return nil
		}
		return err
	}, s.finalError)
	if err == nil || errors.Is(context.Cause(ctx), errSessionEnded) {
		err = io.EOF
	}
	if s.attached != nil {
		s.attached <- err
	}
	s.feed.end(err)
	s.cancel(errStreamOver)
}

func (s *Session) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detaching
}

// isClosed reports whether err is the result of Close. The server ends the attachment
// before it answers Close.
func (s *Session) isClosed(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED
}

// attempt attaches once and returns why the stream ended. All its goroutines have ended
// when it returns.
func (s *Session) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	stream, attached, err := s.sendAttach(ctx)
	if err != nil {
		return err
	}
	s.conn.instance = attached.GetInstanceId()
	s.setConnected(attached)
	return s.client.life.converse(ctx, cancel,
		func(ctx context.Context) { s.send(ctx, stream) }, func() error { return s.receive(stream) })
}

// sendAttach sends the attach request and waits for the answer.
func (s *Session) sendAttach(ctx context.Context) (sessionStream, *execwirev1.SessionAttached, error) {
	stream, err := s.client.sessions.AttachSession(ctx)
	if err != nil {
		return nil, nil, FromRPC(err)
	}
	response, err := firstAnswer(stream, s.attach(), "the session was attached")
	if err != nil {
		return nil, nil, err
	}
	if response.GetAttached() == nil {
		return nil, nil, protocolErrorf("the first answer was not that the session is attached")
	}
	return stream, response.GetAttached(), nil
}

// setConnected records that the lease is held, again or for the first time.
func (s *Session) setConnected(attached *execwirev1.SessionAttached) {
	s.feed.acks.resume(attached.GetOutputWindowBytes(), attached.GetOutputWindowEvents())
	s.pinged.Clear() // a ping of the previous stream needs no answer
	s.mu.Lock()
	s.info, s.connected = attached.GetSession(), true
	s.mu.Unlock()
	if s.attached != nil {
		s.attached <- nil
		s.attached = nil
	}
	s.conn.setConnected()
}

func (s *Session) setDisconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected = false
}

// finalError returns the final error if another stream after err is useless, or nil.
func (s *Session) finalError(err error) error {
	e, ok := err.(*Error) // not errors.As: only an *Error itself is an answer
	switch {
	case errors.Is(err, io.EOF):
		return protocolErrorf("the stream ended without a reason")
	case !ok, s.attached != nil:
		return err
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return s.lostError(err)
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED && time.Since(s.conn.lostAt) < staleAttachmentTimeout:
		return nil
	case !s.conn.isTransient(e):
		return err
	case s.conn.graceExpired(s.Info().GetGrace().AsDuration()):
		return s.lostError(err)
	case s.hasEnded():
		return io.EOF // a lost connection detaches as well
	}
	return nil
}

func (s *Session) lostError(err error) *SessionLostError {
	return &SessionLostError{SessionID: s.ID(), Lost: s.conn.lostFor(), Restarted: isRestarted(s.conn.instance, err), Err: err}
}

// receive processes messages until the stream ends; the error is never nil.
func (s *Session) receive(stream sessionStream) error {
	defer s.setDisconnected()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return FromRPC(err)
		}
		switch m := response.GetMessage().(type) {
		case *execwirev1.AttachSessionResponse_Events:
			err = s.feed.add(m.Events.GetProcessId(), m.Events.GetEvents())
			s.conn.resetFailures()
		case *execwirev1.AttachSessionResponse_Released:
			err = s.feed.release(m.Released.GetProcessId())
		case *execwirev1.AttachSessionResponse_Ping:
			// Only the last of several pings needs an answer.
			s.nonce.Store(m.Ping.GetNonce())
			s.pinged.Set()
		case *execwirev1.AttachSessionResponse_Attached:
			err = protocolErrorf("it attached the session twice on one stream")
		}
		if err != nil {
			return err
		}
	}
}

// send acknowledges, answers pings and detaches, until ctx is done or the stream
// breaks; the receiver learns why.
func (s *Session) send(ctx context.Context, stream sessionStream) {
	for {
		var requests []*execwirev1.AttachSessionRequest
		select {
		case <-ctx.Done():
			return
		case <-s.pinged.C():
			requests = append(requests, &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
				Pong: &execwirev1.SessionPong{Nonce: s.nonce.Load()}}})
		case <-s.feed.acks.due.C():
			requests = s.acknowledgements()
		case <-s.detachRequested:
			requests = append(s.acknowledgements(), &execwirev1.AttachSessionRequest{
				Message: &execwirev1.AttachSessionRequest_Detach{Detach: &execwirev1.SessionDetach{}}})
			sendAll(stream, requests)
			return
		}
		if !sendAll(stream, requests) {
			return
		}
	}
}

// acknowledgements acknowledge what was consumed so far.
func (s *Session) acknowledgements() (requests []*execwirev1.AttachSessionRequest) {
	for id, seq := range s.feed.acks.pending() {
		requests = append(requests, &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
			Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: id, Seq: seq}}})
	}
	return requests
}

func sendAll(stream sessionStream, requests []*execwirev1.AttachSessionRequest) bool {
	for _, request := range requests {
		if stream.Send(request) != nil {
			return false
		}
	}
	return true
}
