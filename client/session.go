package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// SessionOptions says which session to attach to, and how. The zero value asks
// for a new one.
type SessionOptions struct {
	// SessionID is the session; empty asks for a new one.
	SessionID string
	// AfterSeq is what the caller has taken of each process, by process id, as
	// [Session.Cursors] of an earlier attachment had it. What is not in it is
	// sent from what was last acknowledged. An id must still mean the same
	// process. At most 10,000.
	AfterSeq map[string]uint64
	// Grace is how long the server keeps the session when the connection is
	// lost, and so how long a Session tries to return. nil leaves it to the
	// server; 0 ends the session with the connection.
	Grace *time.Duration
	// WhenDetached says what happens to output meanwhile; unspecified leaves it
	// to the server, or as an attachment before had it.
	WhenDetached execwirev1.WhenDetached
	// OnLost is called when the connection is lost and the Session begins to try
	// to return, OnResumed when it succeeded. They are called one at a time and
	// must not block, nor end the Session.
	OnLost    func(error)
	OnResumed func()
}

// SessionEvents is what [Session.Next] returns: events of one process, in order,
// or that it left the feed.
type SessionEvents struct {
	// ProcessID is the process.
	ProcessID string
	// Events follow those that came before without a hole: what is missing is a
	// gap among them. Only the first events that a Session gets of a process may
	// begin after seq 1. They must not be changed.
	Events []*execwirev1.ProcessEvent
	// Released says, in place of events, that a RunProcess stream owns the
	// process now. Its events come again when that stream has given it up.
	Released bool
}

// Session is an attachment to a leased session: it holds the lease, gets the
// events of all the session's processes, and survives lost connections without
// losing or repeating an event. Processes are started and controlled by the
// generated stub with the session's id, see [Client.Processes].
//
// Every Session must be ended by [Session.Detach] or [Session.Close]. All
// methods may be called concurrently.
type Session struct {
	client  *Client
	options SessionOptions
	feed    *sessionFeed
	// pongs holds the nonce of the last ping that was not answered yet.
	pongs chan uint64
	// leaving is closed when the caller wants to detach.
	leaving chan struct{}
	// over is closed when nothing is left of the attachment.
	over chan struct{}
	// cancel ends all streams.
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	info      *execwirev1.Session // guarded by mu; as of the last attachment
	connected bool                // guarded by mu; a sender is there to detach
	left      bool                // guarded by mu; leaving is closed
	closing   bool                // guarded by mu; the caller has asked to close the session

	// These belong to the goroutine of follow.
	link     sessionLink
	attached chan<- error // gets how the first attempt went; nil once it has
}

// errLeft ends the streams of a Session that its caller ended.
var errLeft = errors.New("the session was left")

// AttachSession takes the lease of a session and blocks until it is granted,
// refused ([*Error]) or ctx is done; the Session lives on after ctx. A session
// that is attached elsewhere is refused with SESSION_ATTACHED if its client
// answers, which takes the server up to 2 s to find out. It may be called
// concurrently.
func (c *Client) AttachSession(ctx context.Context, options SessionOptions) (*Session, error) {
	options.AfterSeq = maps.Clone(options.AfterSeq)
	streams, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Session{
		client: c, options: options, feed: newSessionFeed(options.AfterSeq),
		pongs: make(chan uint64, 1), leaving: make(chan struct{}), over: make(chan struct{}), cancel: cancel,
	}
	attached := make(chan error, 1)
	s.attached = attached
	go s.follow(streams)
	select {
	case err := <-attached:
		if err != nil {
			<-s.over
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		<-s.over
		return nil, context.Cause(ctx)
	}
}

// ID returns the session's id. It never changes.
func (s *Session) ID() string { return s.Info().GetSessionId() }

// Info describes the session as it was when it was last attached. It must not
// be changed.
func (s *Session) Info() *execwirev1.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Next blocks until there are events, the Session has ended, or ctx is done,
// whose cause it then returns. What was received before the end comes before
// it. The end is io.EOF after Detach and Close; an [*Error] when the server
// ended the attachment, for instance with SESSION_TAKEN_OVER or SESSION_CLOSED;
// a [*SessionLostError] when the connection could not be made again in time; a
// [*ProtocolError].
//
// A Session receives whether or not Next is called, so that it always answers
// the server: it holds at most one window of each process, because no more is
// sent before it was taken.
func (s *Session) Next(ctx context.Context) (SessionEvents, error) { return s.feed.next(ctx) }

// Events ranges over what Next returns, until the Session has ended. It ends
// with an error unless that is io.EOF.
func (s *Session) Events(ctx context.Context) iter.Seq2[SessionEvents, error] {
	return func(yield func(SessionEvents, error) bool) {
		for {
			events, err := s.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// Acknowledge says that every event of the process up to seq is where it should
// be. The server is told in time for the process not to wait, keeps it no longer
// and never sends it again; what Next returned and was not acknowledged is kept
// by the server should this program end. It never blocks.
func (s *Session) Acknowledge(processID string, seq uint64) { s.feed.taken(processID, seq) }

// Cursors returns what was acknowledged of each process, for
// [SessionOptions.AfterSeq] of a later attachment; of at most 10,000 processes.
// Those that have closed and were acknowledged to the end leave it after a while.
func (s *Session) Cursors() map[string]uint64 { return s.feed.cursors() }

// Detach ends the attachment and not the session: its grace begins. It blocks
// until the server has all acknowledgements and knows; when ctx is done first,
// the connection is lost instead, which is the same to the session. The error
// is that of Next, if the Session ended otherwise before.
func (s *Session) Detach(ctx context.Context) error {
	s.leave()
	select {
	case <-s.over:
	case <-ctx.Done():
		s.cancel(errLeft)
		<-s.over
	}
	return s.feed.endedWith()
}

// leave asks the sender to detach, or ends a Session that is not connected.
func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.left = true
		close(s.leaving)
	}
	if !s.connected {
		s.cancel(errLeft)
	}
}

// Close ends the session: it terminates its processes, descendants included,
// and blocks until nothing of them is left. When that fails the Session goes
// on, and must be ended again.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	_, err := s.client.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.ID()})
	if err = FromRPC(err); err != nil && Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
		return err
	}
	s.cancel(errLeft)
	<-s.over
	return nil
}

// attach is the first message of a stream.
func (s *Session) attach() *execwirev1.AttachSessionRequest {
	m := &execwirev1.SessionAttach{
		SessionId:    s.options.SessionID,
		AfterSeq:     s.feed.attachCursors(),
		WhenDetached: s.options.WhenDetached,
	}
	if info := s.Info(); info != nil {
		m.SessionId = info.GetSessionId()
	}
	if s.options.Grace != nil {
		m.Grace = durationpb.New(*s.options.Grace)
	}
	return &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: m}}
}
