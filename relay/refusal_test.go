package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

func TestEndpoint_InvalidCalls_Fail(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, Streams: 2, MessageBytes: 10}), endpoint(t, Config{})
	if _, err := x.Open(""); !errors.Is(err, ErrRole) {
		t.Errorf("an executor opened a stream: %v", err)
	}
	if _, err := h.Accept(t.Context()); !errors.Is(err, ErrRole) {
		t.Errorf("a harness accepted a stream: %v", err)
	}
	for _, id := range []string{" a", "\xff", strings.Repeat("a", 129)} {
		_, err := h.Open(id)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(id)) {
			t.Errorf("stream id %q: %v", id, err)
		}
	}
	s, err := h.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Open("a"); !errors.Is(err, ErrStreamExists) {
		t.Errorf("a stream was opened twice: %v", err)
	}
	if err := s.Send(t.Context(), nil); !errors.Is(err, ErrEmptyMessage) {
		t.Errorf("an empty message was sent: %v", err)
	}
	err = s.Send(t.Context(), make([]byte, 11))
	if limit, is := errors.AsType[*LimitError](err); !is || limit.Name != "MessageBytes" || limit.Limit != 10 {
		t.Errorf("a message beyond the limit was sent: %v", err)
	}
	if _, err := h.Open("b"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Open("c")
	if limit, is := errors.AsType[*LimitError](err); !is || limit.Name != "Streams" || limit.Limit != 2 {
		t.Errorf("a stream beyond the limit was opened: %v", err)
	}
	s.Reset("")
	expectReset(t, s, ReasonClosed, false)
	if _, err := h.Open("a"); !errors.Is(err, ErrStreamExists) {
		t.Errorf("the id of a stream that has just ended was used again: %v", err)
	}
	if _, err := h.Open("c"); err != nil {
		t.Errorf("the place of a stream that has ended was not free: %v", err)
	}
	if err := h.Close(ReasonGoingAway); err != nil {
		t.Error(err)
	}
	if _, err := h.Open("d"); !errors.Is(err, ErrClosed) {
		t.Errorf("a stream was opened at an endpoint that is closed: %v", err)
	}
}

func TestEndpoint_StreamLimit(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{Streams: 2})
	connect(t, h, x)
	a, b, c := openReliable(t, h), openReliable(t, h), openReliable(t, h)
	send(t, a, "a")
	send(t, b, "b")
	pa, pb := accept(t, x), accept(t, x)
	send(t, c, "c")
	expectReset(t, c, ReasonStreamLimit, true)
	expect(t, pa, "a")
	expect(t, pb, "b")
	pa.Reset(ReasonClosed)
	expectReset(t, a, ReasonClosed, true)
	d := openReliable(t, h)
	send(t, d, "d")
	expect(t, accept(t, x), "d")
}

func TestSend_TooLargeForPlainPeer_Fails(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, PlainMessageBytes: 10}), endpoint(t, Config{})
	s, err := h.Open("")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Send(t.Context(), make([]byte, 11))
	if limit, is := errors.AsType[*LimitError](err); !is || limit.Name != "PlainMessageBytes" || s.MessageLimit() != 10 {
		t.Errorf("a message beyond the limit of %d was sent: %v", s.MessageLimit(), err)
	}
	connect(t, h, x)
	if err := s.WaitReliable(within(t)); err != nil {
		t.Fatal(err)
	}
	if s.MessageLimit() != DefaultMessageBytes {
		t.Errorf("the limit is %d bytes", s.MessageLimit())
	}
	send(t, s, "more than ten bytes")
	expect(t, accept(t, x), "more than ten bytes")
}

func TestSend_TooLargeForPeer_EndsStream(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{MessageBytes: 100_000})
	connect(t, h, x)
	s, other := openReliable(t, h), openReliable(t, h)
	send(t, s, strings.Repeat("x", 100_000))
	p := accept(t, x)
	expect(t, p, strings.Repeat("x", 100_000))
	send(t, s, strings.Repeat("x", 100_001))
	expectReset(t, s, ReasonMessageTooLarge, true)
	expectReset(t, p, ReasonMessageTooLarge, false)
	send(t, other, "goes on")
	expect(t, accept(t, x), "goes on")
}

// The context of a Send ends after a part of the message was sent.
func TestSend_CanceledMidMessage_EndsStream(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: 62 << 10, MessageBytes: 100 << 20}), endpoint(t, Config{QueueBytes: 1})
	connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "first")
	p := accept(t, x)
	// Nobody receives, so the peer's queue fills, then the window.
	ctx, cancel := context.WithCancelCause(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- s.Send(ctx, make([]byte, 50<<20)) }()
	why := errors.New("changed my mind")
	eventually(t, s, func(one *streamState) bool { return len(one.send.queue) == DefaultWindowFrames })
	cancel(why)
	if err := <-sent; !errors.Is(err, why) {
		t.Errorf("the error is %v", err)
	}
	expectReset(t, s, ReasonMessageCut, false)
	expect(t, p, "first")
	expectReset(t, p, ReasonMessageCut, true)
}

// lateContext ends right after the first look at it once it is armed.
type lateContext struct {
	context.Context
	cancel context.CancelCauseFunc
	why    error
	armed  atomic.Bool
}

func (c *lateContext) Err() error {
	err := c.Context.Err()
	if c.armed.CompareAndSwap(true, false) {
		c.cancel(c.why)
	}
	return err
}

// The context ends at the moment at which a Send that waits is woken.
func TestSend_CanceledMidMessageWhileStreamChanges_FailsWithCause(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: 62 << 10, MessageBytes: 100 << 20}), endpoint(t, Config{QueueBytes: 1})
	connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "first")
	accept(t, x)
	ctx := &lateContext{why: errors.New("changed my mind")}
	ctx.Context, ctx.cancel = context.WithCancelCause(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- s.Send(ctx, make([]byte, 50<<20)) }()
	eventually(t, s, func(one *streamState) bool { return len(one.send.queue) == DefaultWindowFrames })
	h.mu.Lock()
	ctx.armed.Store(true)
	s.changed.Notify()
	h.mu.Unlock()
	if err := <-sent; !errors.Is(err, ctx.why) {
		t.Errorf("the error is %v", err)
	}
	expectReset(t, s, ReasonMessageCut, false)
}

// A carrier survives messages that are not frames, and the log is not flooded.
func TestRun_InvalidFrames_AreDropped(t *testing.T) {
	var log bytes.Buffer
	h := endpoint(t, Config{Role: Harness})
	x := endpoint(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	x.handleFrame(nil)
	for range 1000 {
		x.handleFrame([]byte("garbage"))
	}
	connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "hello")
	expect(t, accept(t, x), "hello")
	x.mu.Lock()
	defer x.mu.Unlock()
	if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 900 || !strings.Contains(log.String(), errNotBinary.Error()) {
		t.Errorf("%d lines: %.300s", lines, log.String())
	}
}
