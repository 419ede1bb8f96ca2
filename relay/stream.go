package relay

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/tracecontext"
)

// Stream carries messages in both directions, in order. All methods may be called
// concurrently, but Receive by one goroutine. A stream ends by Reset, by a reset of the peer, by a limit, when
// the peer is silent for too long, or when the endpoint is closed.
type Stream struct {
	id       string
	endpoint *Endpoint
	state    *streamState     // guarded by endpoint.mu
	changed  notify.Broadcast // guarded by endpoint.mu; notified when the stream ended or an operation may proceed
	received []byte           // guarded by endpoint.mu; buffer of the message that Receive returned last
	sending  chan struct{}    // binary semaphore of send
	done     chan struct{}    // closed when the stream has ended
}

func newStream(e *Endpoint, st *streamState) *Stream {
	return &Stream{id: st.id, endpoint: e, state: st, sending: make(chan struct{}, 1), done: make(chan struct{})}
}

// stateChanged wakes waiters. endpoint.mu is held.
func (s *Stream) stateChanged() {
	s.changed.Notify()
	if s.state.flow.ended != nil {
		close(s.done)
	}
}

// ID returns the stream id in the frames.
func (s *Stream) ID() string { return s.id }

// Send sends one message, without retaining it. It blocks while the window is
// full or another Send is in progress. A nil error means that the message will
// arrive or the stream ends with an error at both ends, not that it has arrived
// (see [Stream.WaitAcknowledged]).
//
// The error is the stream's [*ResetError], the cause of ctx, a [*LimitError] for
// a message beyond [Stream.MessageLimit], or [ErrEmptyMessage]. If ctx ends after
// the first of several segments was sent, the stream ends too.
func (s *Stream) Send(ctx context.Context, message []byte) error {
	return s.SendTraced(ctx, message, tracecontext.Context{})
}

// SendTraced is Send of a message that belongs to a trace: its first frame carries the
// trace context, outside the message.
func (s *Stream) SendTraced(ctx context.Context, message []byte, trace tracecontext.Context) error {
	if len(message) == 0 {
		return ErrEmptyMessage
	}
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return s.failed()
	}
	size, err := s.segmentBytes(len(message))
	if err != nil {
		return err
	}
	for seg := range splitMessage(s.id, message, size, trace) {
		if err := s.push(ctx, seg); err != nil {
			return err
		}
	}
	return nil
}

// segmentBytes returns the segment size for a message, unless the message is too
// large.
func (s *Stream) segmentBytes(message int) (int, error) {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	if name, limit := s.limit(); message > limit {
		return 0, &LimitError{Name: name, Value: message, Limit: limit}
	}
	if s.state.peer != reliable {
		return message, nil
	}
	return s.endpoint.table.config.SegmentBytes, nil
}

// MessageLimit returns the current limit of Send in bytes: Config.MessageBytes if
// the peer acknowledges, otherwise at most Config.PlainMessageBytes.
func (s *Stream) MessageLimit() int {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	_, limit := s.limit()
	return limit
}

// limit returns the current message limit. endpoint.mu is held.
func (s *Stream) limit() (name string, bytes int) {
	c := &s.endpoint.table.config
	if s.state.peer != reliable && c.PlainMessageBytes < c.MessageBytes {
		return "PlainMessageBytes", c.PlainMessageBytes
	}
	return "MessageBytes", c.MessageBytes
}

// push queues a segment when the window has space for it.
func (s *Stream) push(ctx context.Context, seg segment) error {
	return s.await(ctx, func() (done bool, err error) {
		switch {
		case s.state.flow.ended != nil:
			return false, s.end()
		case s.state.finishing:
			return false, ErrClosed
		case s.state.makeSpace(seg.size()):
			s.state.send.push(seg)
			s.endpoint.update(s.state)
			return true, nil
		case ctx.Err() != nil && seg.index > 0:
			s.state.end(ReasonMessageCut, false)
			s.endpoint.update(s.state)
			return false, context.Cause(ctx)
		}
		return false, nil
	})
}

// await is [Endpoint.await] for changes of the stream.
func (s *Stream) await(ctx context.Context, attempt func() (done bool, err error)) error {
	return s.endpoint.await(ctx, &s.changed, attempt)
}

// Receive returns the next message, which is valid until the next Receive, and blocks
// until there is one. It is for one goroutine at a time. The error is the cause of ctx or,
// permanently, the stream's [*ResetError]; messages received before the end of the stream
// are returned first.
func (s *Stream) Receive(ctx context.Context) (message []byte, err error) {
	message, _, err = s.ReceiveTraced(ctx)
	return message, err
}

// ReceiveTraced is Receive. It also returns the trace context that the first frame of the
// message carried: zero if there was none, or it was malformed.
func (s *Stream) ReceiveTraced(ctx context.Context) (message []byte, trace tracecontext.Context, err error) {
	err = s.await(ctx, func() (done bool, err error) {
		buffers.Put(s.received)
		s.received = nil
		if got := s.state.pop(); got.payload != nil {
			message, trace, s.received = got.payload, got.trace, got.buffer
			s.endpoint.update(s.state)
			return true, nil
		}
		if s.state.flow.ended != nil {
			return false, s.end()
		}
		return false, nil
	})
	return message, trace, err
}

// WaitReliable blocks until the peer has shown that it acknowledges. The error is
// [ErrPlainPeer] if it has not within Config.ProbeTimeout, the stream's
// [*ResetError] or the cause of ctx.
func (s *Stream) WaitReliable(ctx context.Context) error {
	always := func() bool { return true }
	return s.waitPeer(ctx, always, always)
}

// WaitAcknowledged blocks until the peer has acknowledged everything that was
// sent before the call. The errors are those of [Stream.WaitReliable], but
// [ErrPlainPeer] is returned only after the carrier has taken everything.
func (s *Stream) WaitAcknowledged(ctx context.Context) error {
	s.endpoint.mu.Lock()
	last := s.state.send.first + uint32(len(s.state.send.queue))
	s.endpoint.mu.Unlock()
	return s.waitPeer(ctx, func() bool { return distance(last, s.state.send.first) >= 0 },
		func() bool { return distance(last, s.state.send.next()) >= 0 })
}

// waitPeer blocks until the peer is reliable and whenReliable holds, or it is
// plain and whenPlain holds.
func (s *Stream) waitPeer(ctx context.Context, whenReliable, whenPlain func() bool) error {
	return s.await(ctx, func() (done bool, err error) {
		switch {
		case s.state.flow.ended != nil:
			return false, s.end()
		case s.state.peer == plain && whenPlain():
			return false, ErrPlainPeer
		}
		return s.state.peer == reliable && whenReliable(), nil
	})
}

// Reset ends the stream at both ends; what has not arrived is lost. The peer
// receives the reason if there is a carrier: its first 256 bytes, [ReasonClosed]
// if it is empty. Resetting an ended stream releases it.
func (s *Stream) Reset(reason string) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	s.state.end(cleanReason(reason), false)
	e.update(s.state)
	_ = s.end()
}

// finish ends the stream as Reset does, with ReasonClosed, after everything sent
// has arrived.
func (s *Stream) finish() {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state.flow.ended != nil {
		_ = s.end()
		return
	}
	s.state.released = true
	s.state.finish(time.Now())
	e.update(s.state)
}

// cleanReason makes a reason valid for a frame.
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

// LastReceived returns when the last frame of the peer was received, or the stream
// began.
func (s *Stream) LastReceived() time.Time {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	return s.state.flow.silenceEnd.Add(-s.endpoint.table.config.SilenceTimeout)
}

// Err returns why the stream ended, as a [*ResetError]; nil while it is open.
func (s *Stream) Err() error {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	if s.state.flow.ended == nil {
		return nil
	}
	return s.state.flow.ended
}

// failed is end for callers that do not hold endpoint.mu.
func (s *Stream) failed() error {
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	return s.end()
}

// end returns why the stream ended, and marks the end as reported to the
// application. endpoint.mu is held.
func (s *Stream) end() error {
	s.endpoint.table.reportEnd(s.state)
	return s.state.flow.ended
}
