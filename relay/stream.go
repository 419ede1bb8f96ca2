package relay

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

// Stream carries messages both ways, in order. All methods may be called
// concurrently. It ends by Reset, the peer's reset, a limit or a long silence of
// the peer, and an endpoint that is closed.
type Stream struct {
	id       string
	endpoint *Endpoint
	line     *line         // guarded by endpoint.mu
	changed  bell          // guarded by endpoint.mu; it ended, or whatever one may wait for
	turn     chan struct{} // held by whoever sends a message
	done     chan struct{} // closed when it has ended
}

func newStream(e *Endpoint, one *line) *Stream {
	return &Stream{id: one.id, endpoint: e, line: one, turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// noticed wakes those who wait. endpoint.mu is held.
func (s *Stream) noticed() {
	s.changed.ring()
	if s.line.flow.ended != nil {
		close(s.done)
	}
}

// ID returns the id that frames of the stream have.
func (s *Stream) ID() string { return s.id }

// Send sends one message, which it does not keep. It blocks while the window is
// full, or another Send is under way. A nil error says that the message will
// arrive or the stream end with an error at both ends, not that it has arrived
// (see [Stream.WaitAcknowledged]).
//
// The error is the stream's [*ResetError], the cause of ctx, a [*LimitError] for
// a message beyond [Stream.MessageLimit], or [ErrEmptyMessage]. If ctx ends in the
// middle of a message of several segments the stream ends too.
func (s *Stream) Send(ctx context.Context, message []byte) error {
	return s.send(ctx.Done(), func() error { return context.Cause(ctx) }, message)
}

// send is Send with the two parts of a context.
func (s *Stream) send(done <-chan struct{}, cause func() error, message []byte) error {
	if len(message) == 0 {
		return ErrEmptyMessage
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-done:
		return cause()
	case <-s.done:
		return s.failed()
	}
	size, err := s.segmentBytes(len(message))
	if err != nil {
		return err
	}
	for part := range cutMessage(s.id, message, size) {
		if err := s.push(done, cause, part); err != nil {
			return err
		}
	}
	return nil
}

// segmentBytes returns into what segments a message is cut, unless it is too
// large.
func (s *Stream) segmentBytes(message int) (int, error) {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	if name, limit := s.limit(); message > limit {
		return 0, &LimitError{Name: name, Value: message, Limit: limit}
	}
	if s.line.peer != reliable {
		return message, nil
	}
	return s.endpoint.table.config.SegmentBytes, nil
}

// MessageLimit returns how large a message Send takes now, in bytes:
// Config.MessageBytes to a peer that acknowledges, and to others no more than
// Config.PlainMessageBytes.
func (s *Stream) MessageLimit() int {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	_, limit := s.limit()
	return limit
}

// limit returns the limit of messages that holds now. endpoint.mu is held.
func (s *Stream) limit() (name string, bytes int) {
	c := &s.endpoint.table.config
	if s.line.peer != reliable && c.PlainMessageBytes < c.MessageBytes {
		return "PlainMessageBytes", c.PlainMessageBytes
	}
	return "MessageBytes", c.MessageBytes
}

// push has a segment sent when there is room for it.
func (s *Stream) push(done <-chan struct{}, cause func() error, part segment) error {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		switch {
		case s.line.flow.ended != nil:
			return s.end()
		case s.line.leave:
			return ErrClosed
		case s.line.room(part.size()):
			s.line.push(part)
			e.settle(s.line)
			return nil
		case isDone(done):
			if part.index > 0 {
				s.line.end(ReasonMessageCut, false)
				e.settle(s.line)
			}
			return cause()
		}
		e.wait(done, &s.changed)
	}
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Receive returns the next message, which is the caller's to keep, and blocks
// until there is one. The error is the cause of ctx or, for good, the stream's
// [*ResetError]; what the peer sent before it ended the stream is returned first.
func (s *Stream) Receive(ctx context.Context) ([]byte, error) {
	return s.receive(ctx.Done(), func() error { return context.Cause(ctx) })
}

// receive is Receive with the two parts of a context.
func (s *Stream) receive(done <-chan struct{}, cause func() error) ([]byte, error) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if message := s.line.pop(); message != nil {
			e.settle(s.line)
			return message, nil
		}
		switch {
		case s.line.flow.ended != nil:
			return nil, s.end()
		case isDone(done):
			return nil, cause()
		}
		e.wait(done, &s.changed)
	}
}

// WaitReliable blocks until the peer has shown that it acknowledges. The error is
// [ErrPlainPeer] if it did not within Config.ProbeTimeout, the stream's
// [*ResetError] or the cause of ctx.
func (s *Stream) WaitReliable(ctx context.Context) error {
	atOnce := func() bool { return true }
	return s.until(ctx, atOnce, atOnce)
}

// WaitAcknowledged blocks until the peer has acknowledged all that was sent when
// it was called. The errors are those of [Stream.WaitReliable], but [ErrPlainPeer]
// comes only when the carrier has taken all that.
func (s *Stream) WaitAcknowledged(ctx context.Context) error {
	s.endpoint.mu.Lock()
	last := s.line.send.first + uint32(len(s.line.send.queue))
	s.endpoint.mu.Unlock()
	return s.until(ctx, func() bool { return distance(last, s.line.send.first) >= 0 },
		func() bool { return distance(last, s.line.send.next()) >= 0 })
}

// until blocks until the peer is known to acknowledge and so holds too, or known
// not to and left holds.
func (s *Stream) until(ctx context.Context, so, left func() bool) error {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		switch {
		case s.line.flow.ended != nil:
			return s.end()
		case s.line.peer == reliable && so():
			return nil
		case s.line.peer == plain && left():
			return ErrPlainPeer
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		e.wait(ctx.Done(), &s.changed)
	}
}

// Reset ends the stream at both ends; what was sent and has not arrived is lost.
// The peer is told the reason, of which the first 256 bytes count and an empty
// one is [ReasonClosed], as far as a carrier takes it. Resetting a stream that
// has ended frees its place.
func (s *Stream) Reset(reason string) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	s.line.end(cleanReason(reason), false)
	e.settle(s.line)
	_ = s.end()
}

// finish ends the stream as Reset does, with ReasonClosed, when what was sent has
// arrived.
func (s *Stream) finish() {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.line.flow.ended != nil {
		_ = s.end()
		return
	}
	s.line.quit = true
	s.line.finish(time.Now())
	e.settle(s.line)
}

// cleanReason returns a reason that a frame may have.
func cleanReason(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	if reason == "" {
		return ReasonClosed
	}
	cut := min(len(reason), maxReason)
	for cut < len(reason) && !utf8.RuneStart(reason[cut]) {
		cut--
	}
	return reason[:cut]
}

// Done returns a channel that is closed when the stream has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// HeardAt returns when something of the peer came last, or the stream began.
func (s *Stream) HeardAt() time.Time {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	return s.line.flow.silence.Add(-s.endpoint.table.config.SilenceTimeout)
}

// Err returns why the stream ended, a [*ResetError]; nil while it has not.
func (s *Stream) Err() error {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	if s.line.flow.ended == nil {
		return nil
	}
	return s.line.flow.ended
}

// failed returns why the stream ended.
func (s *Stream) failed() error {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	return s.end()
}

// end returns why the stream ended, to an application that knows from then on.
// endpoint.mu is held.
func (s *Stream) end() error {
	s.endpoint.table.tell(s.line)
	return s.line.flow.ended
}
