package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// SessionOptions select the session to attach to. The zero value creates one.
type SessionOptions struct {
	// SessionID is the session; empty creates one.
	SessionID string
	// AfterSeq has the last consumed event of each process, by process id, as returned
	// by [Session.Cursors] of an earlier attachment. Other processes continue after
	// their last acknowledged event. An id must still refer to the same process. At
	// most 10,000.
	AfterSeq map[string]uint64
	// Grace is how long the server keeps the session, and a Session tries to return,
	// after a lost connection. nil is the default of the server; with 0 the session
	// ends with the connection.
	Grace *time.Duration
	// WhenDetached is what happens to output while detached; unspecified is the default
	// of the server, or that of the previous attachment.
	WhenDetached execwirev1.WhenDetached
	// OnLost is called when the connection is lost and the Session begins to return,
	// OnResumed when it succeeded. They are called one at a time, must not block, and
	// must not end the Session.
	OnLost    func(error)
	OnResumed func()
}

// SessionEvents is returned by [Session.Next]: events of one process, in order, or its
// removal from the feed.
type SessionEvents struct {
	// ProcessID is the process.
	ProcessID string
	// Events follow the previous ones without a hole: missing events are a gap. Only
	// the first events of a process may begin after seq 1. They must not be modified.
	Events []*execwirev1.ProcessEvent
	// Released is set, instead of events, when a RunProcess stream takes over the
	// process. Its events continue when that stream ends.
	Released bool
}

// Session is an attachment to a leased session: it holds the lease, receives the events
// of all its processes, and survives lost connections without losing or repeating an
// event. Processes are started and controlled by the generated stub with the session
// id, see [Client.Processes].
//
// Every Session must be ended by [Session.Detach] or [Session.Close]. All methods may
// be called concurrently.
type Session struct {
	client  *Client
	options SessionOptions
	feed    *sessionFeed
	// pinged is set by a ping, nonce is that of the last one.
	pinged notify.Signal
	nonce  atomic.Uint64
	// detachRequested is closed when the caller detaches.
	detachRequested chan struct{}
	// over is closed when the attachment has ended.
	over chan struct{}
	// cancel ends all streams.
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	info      *execwirev1.Session // guarded by mu; as of the last attachment
	connected bool                // guarded by mu; there is a sender to detach
	detaching bool                // guarded by mu; whether detachRequested is closed
	closing   bool                // guarded by mu; the caller asked to close the session

	// These belong to the goroutine of follow.
	conn     connState
	attached chan<- error // receives the result of the first attempt; nil afterwards
}

// errSessionEnded ends the streams of a Session that its caller ended.
var errSessionEnded = errors.New("the session was left")

// AttachSession acquires the lease of a session and blocks until it is granted,
// rejected ([*Error]) or ctx is done; the Session outlives ctx. A session attached
// elsewhere is rejected with SESSION_ATTACHED if its client responds, which takes the
// server up to 2 s to find out. It may be called concurrently.
func (c *Client) AttachSession(ctx context.Context, options SessionOptions) (*Session, error) {
	options.AfterSeq = maps.Clone(options.AfterSeq)
	streams, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Session{
		client: c, options: options, feed: newSessionFeed(options.AfterSeq),
		conn:   connState{onLost: options.OnLost, onResumed: options.OnResumed},
		pinged: notify.NewSignal(), detachRequested: make(chan struct{}), over: make(chan struct{}), cancel: cancel,
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

// ID returns the id of the session. It never changes.
func (s *Session) ID() string { return s.Info().GetSessionId() }

// Info describes the session at the last attachment. It must not be modified.
func (s *Session) Info() *execwirev1.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Next blocks until there are events, the Session has ended, or ctx is done; then it
// returns the cause. Events received before the end are returned first. The end is
// io.EOF after Detach and Close; an [*Error] when the server ended the attachment, for
// instance with SESSION_TAKEN_OVER or SESSION_CLOSED; a [*SessionLostError] when it
// could not reconnect in time; a [*ProtocolError].
//
// A Session receives whether or not Next is called, so that it always answers pings: it
// buffers at most one window of each process. A server that sends more than
// [MaxUnreadBytes] of one ends it with a [*WindowError].
func (s *Session) Next(ctx context.Context) (SessionEvents, error) { return s.feed.next(ctx) }

// Events ranges over the results of Next until the Session has ended. It ends with an
// error unless that is io.EOF.
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

// Acknowledge confirms every event of the process up to seq. It is sent to the server
// early enough for the process not to wait; the server then releases the events and
// never sends them again. Events that Next returned without an acknowledgement stay on
// the server if this program ends. It never blocks.
func (s *Session) Acknowledge(processID string, seq uint64) { s.feed.taken(processID, seq) }

// Cursors returns the last acknowledged event of each process, at most 10,000, for
// [SessionOptions.AfterSeq] of a later attachment. Closed and completely acknowledged
// processes are removed after a while.
func (s *Session) Cursors() map[string]uint64 { return s.feed.cursors() }

// Detach ends the attachment but not the session: its grace period begins. It blocks
// until the server has confirmed and has all acknowledgements; if ctx is done first,
// the connection is dropped instead, with the same effect on the session. The error is
// that of Next if the Session ended otherwise before.
func (s *Session) Detach(ctx context.Context) error {
	s.requestDetach()
	select {
	case <-s.over:
	case <-ctx.Done():
		s.cancel(errSessionEnded)
		<-s.over
	}
	return s.feed.endedWith()
}

// requestDetach asks the sender to detach, or ends a Session that is not connected.
func (s *Session) requestDetach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.detaching {
		s.detaching = true
		close(s.detachRequested)
	}
	if !s.connected {
		s.cancel(errSessionEnded)
	}
}

// Close ends the session with its processes and their descendants, and blocks until
// they are gone. If it fails, the Session continues and must be ended again.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	_, err := s.client.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.ID()})
	if err = FromRPC(err); err != nil && Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
		return err
	}
	s.cancel(errSessionEnded)
	<-s.over
	return nil
}

// attach returns the first message of a stream.
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
