package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

type sessionStream = grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]

// lastWords is for how long a server may take a session for attached because it
// still hears what this client said on a stream that was lost.
const lastWords = 10 * time.Second

// sessionLink is what a Session knows about its connection.
type sessionLink struct {
	// lostAt is when the connection was lost; zero while there is one.
	lostAt time.Time
	// odd counts failures without news in between.
	odd int
	// instance is the run of the server that has the session, empty if it did not tell.
	instance string
	backoff  backoff.Backoff
}

// SessionLostError says that the connection was lost and the session could not
// be attached again: it has ended, or will when its grace is over.
type SessionLostError struct {
	// SessionID is the session.
	SessionID string
	// Lost is how long ago the connection was lost.
	Lost time.Duration
	// Restarted is whether another run of the server answered than the one that had the
	// session: it has ended with its processes.
	Restarted bool
	// Err is what the last attempt failed with.
	Err error
}

func (e *SessionLostError) Error() string {
	if e.Restarted {
		return fmt.Sprintf("the server was restarted; the session %s and its processes ended with it", e.SessionID)
	}
	return fmt.Sprintf("failed to attach session %s again for %s: %v", e.SessionID, e.Lost.Round(100*time.Millisecond), e.Err)
}

func (e *SessionLostError) Unwrap() error { return e.Err }

// Is reports whether target is ErrRestarted and that is why.
func (e *SessionLostError) Is(target error) bool { return e.Restarted && target == ErrRestarted }

// follow attaches, one stream after the other, until the Session ends.
func (s *Session) follow(ctx context.Context) {
	defer close(s.over)
	defer context.AfterFunc(s.client.life.ctx, func() { s.cancel(s.client.life.over()) })()
	err := s.followed(ctx)
	if s.attached != nil {
		s.attached <- err
	}
	s.feed.end(err)
	s.cancel(errStreamOver)
}

// followed is follow up to why it ends.
func (s *Session) followed(ctx context.Context) error {
	for {
		err := s.attempt(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errLeft):
			return io.EOF
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.attached != nil:
			return err
		case errors.Is(err, io.EOF) && s.isLeft(), s.isClosed(err):
			return io.EOF
		case errors.Is(err, io.EOF):
			return protocolErrorf("the stream ended without a reason")
		}
		if hopeless := s.hopeless(err); hopeless != nil {
			return hopeless
		}
		if s.isLeft() {
			return io.EOF // a lost connection is as good as a detached one
		}
		s.lose(err)
		if !s.link.backoff.Wait(ctx, retryAfter(err)) {
			if left := context.Cause(ctx); !errors.Is(left, errLeft) {
				return left
			}
			return io.EOF
		}
	}
}

func (s *Session) isLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// isClosed reports whether err is what the caller of Close asked for. The server
// ends the attachment before it answers Close.
func (s *Session) isClosed(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED
}

// attempt attaches once and returns why the stream ended. What it started is
// over when it returns.
func (s *Session) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	stream, attached, err := s.ask(ctx)
	if err != nil {
		return err
	}
	s.link.instance = attached.GetInstanceId()
	s.regain(attached)
	var sender sync.WaitGroup
	sender.Go(func() { s.send(ctx, stream) })
	stop := s.client.life.endInSilence(cancel)
	err = orSilence(ctx, s.receive(stream))
	stop()
	s.mu.Lock()
	s.connected = false
	s.mu.Unlock()
	cancel(errStreamOver)
	sender.Wait()
	return err
}

// ask sends the attach and waits for the answer.
func (s *Session) ask(ctx context.Context) (sessionStream, *execwirev1.SessionAttached, error) {
	stream, err := s.client.sessions.AttachSession(ctx)
	if err != nil {
		return nil, nil, FromRPC(err)
	}
	if err := stream.Send(s.attach()); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, FromRPC(err)
	}
	response, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, nil, protocolErrorf("the stream ended before it said that the session is attached")
	}
	if err != nil {
		return nil, nil, FromRPC(err)
	}
	if response.GetAttached() == nil {
		return nil, nil, protocolErrorf("the first answer was not that the session is attached")
	}
	return stream, response.GetAttached(), nil
}

// regain notes that the lease is held, again or for the first time.
func (s *Session) regain(attached *execwirev1.SessionAttached) {
	s.feed.resume(attached.GetOutputWindowBytes(), attached.GetOutputWindowEvents())
	select { // a ping of the stream before is nobody's any more
	case <-s.pongs:
	default:
	}
	s.mu.Lock()
	s.info, s.connected = attached.GetSession(), true
	s.mu.Unlock()
	if s.attached != nil {
		s.attached <- nil
		s.attached = nil
	}
	if !s.link.lostAt.IsZero() {
		s.link.lostAt = time.Time{}
		if s.options.OnResumed != nil {
			s.options.OnResumed()
		}
	}
}

// hopeless returns what the Session ends with when there is no use in another
// stream after err, or nil.
func (s *Session) hopeless(err error) error {
	e, ok := err.(*Error) // not errors.As: nothing else is an answer
	switch {
	case !ok:
		return err
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return s.lostError(err)
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED && time.Since(s.link.lostAt) < lastWords:
		return nil
	case !transient(e, &s.link.odd):
		return err
	case s.graceIsOver():
		return s.lostError(err)
	}
	return nil
}

// graceIsOver reports whether the server has certainly ended the session.
func (s *Session) graceIsOver() bool {
	grace := s.Info().GetGrace().AsDuration()
	return grace <= 0 || !s.link.lostAt.IsZero() && time.Since(s.link.lostAt) > grace+graceMargin
}

// lose notes that the connection is lost, and reports it if that is news.
func (s *Session) lose(err error) {
	if !s.link.lostAt.IsZero() {
		return
	}
	s.link.lostAt = lostAt(err)
	if s.options.OnLost != nil {
		s.options.OnLost(err)
	}
}

func (s *Session) lostError(err error) *SessionLostError {
	lost := time.Duration(0)
	if !s.link.lostAt.IsZero() {
		lost = time.Since(s.link.lostAt)
	}
	return &SessionLostError{SessionID: s.ID(), Lost: lost, Restarted: isRestarted(s.link.instance, err), Err: err}
}

// receive takes what the server says until the stream ends, which is never nil.
func (s *Session) receive(stream sessionStream) error {
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
			s.link.odd = 0
			s.link.backoff.Reset()
		case *execwirev1.AttachSessionResponse_Released:
			s.feed.release(m.Released.GetProcessId())
		case *execwirev1.AttachSessionResponse_Ping:
			s.ping(m.Ping.GetNonce())
		case *execwirev1.AttachSessionResponse_Attached:
			err = protocolErrorf("it said twice on one stream that the session is attached")
		}
		if err != nil {
			return err
		}
	}
}

// ping has the sender answer. Only the last of several needs an answer.
func (s *Session) ping(nonce uint64) {
	for {
		select {
		case s.pongs <- nonce:
			return
		default:
		}
		select {
		case <-s.pongs:
		default:
		}
	}
}
