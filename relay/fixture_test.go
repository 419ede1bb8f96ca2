package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// patience bounds waiting for something that must happen.
const patience = 2 * time.Minute

// wire is one direction of a pair of carriers, with a bounded buffer.
type wire struct {
	frames chan []byte
	done   chan struct{}
	once   sync.Once
}

func newWire() *wire { return &wire{frames: make(chan []byte, 16), done: make(chan struct{})} }

func (w *wire) cut() { w.once.Do(func() { close(w.done) }) }

// pipeEnd is one end of a pair of carriers in memory.
type pipeEnd struct{ in, out *wire }

// pipe returns two connected carriers.
func pipe() (*pipeEnd, *pipeEnd) {
	there, back := newWire(), newWire()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

func (p *pipeEnd) ReceiveOwned() ([]byte, error) {
	select {
	case b := <-p.in.frames:
		return b, nil
	case <-p.in.done:
	}
	select {
	case b := <-p.in.frames: // sent before the end
		return b, nil
	default:
		return nil, net.ErrClosed
	}
}

func (p *pipeEnd) Send(b []byte) error {
	select {
	case <-p.out.done:
		return net.ErrClosed
	default:
	}
	select {
	case p.out.frames <- append([]byte(nil), b...):
		return nil
	case <-p.out.done:
		return net.ErrClosed
	}
}

func (p *pipeEnd) Close(int, string) error {
	p.in.cut()
	p.out.cut()
	return nil
}

// endpoint returns an endpoint that the test closes. Its default timeouts are so
// long that a slow machine does not make a peer seem plain or silent.
func endpoint(t testing.TB, c Config) *Endpoint {
	t.Helper()
	if c.ProbeTimeout == 0 && c.SilenceTimeout == 0 {
		c.ProbeTimeout, c.SilenceTimeout = patience, 2*patience
	}
	e := NewEndpoint(c)
	t.Cleanup(func() { _ = e.Close(ReasonGoingAway) })
	return e
}

// connect serves a pair of carriers on two endpoints; cut ends the carriers.
func connect(t testing.TB, a, b *Endpoint) (cut func()) {
	t.Helper()
	left, right := pipe()
	var both sync.WaitGroup
	both.Go(func() { _ = a.Run(context.Background(), left) })
	both.Go(func() { _ = b.Run(context.Background(), right) })
	cut = func() {
		_ = left.Close(0, "")
		both.Wait()
	}
	t.Cleanup(cut)
	return cut
}

// within returns a context for operations that must succeed.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("that took too long"))
	t.Cleanup(cancel)
	return ctx
}

// openReliable opens a stream at a harness and waits until the peer has
// acknowledged.
func openReliable(t testing.TB, h *Endpoint) *Stream {
	t.Helper()
	s, err := h.Open("")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReliable(within(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t testing.TB, s *Stream, message string) {
	t.Helper()
	if err := s.Send(within(t), []byte(message)); err != nil {
		t.Fatal(err)
	}
}

func accept(t testing.TB, e *Endpoint) *Stream {
	t.Helper()
	s, err := e.Accept(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// acceptPeer sends a first message on a stream and returns the peer's end of it.
func acceptPeer(t testing.TB, s *Stream, at *Endpoint) *Stream {
	t.Helper()
	send(t, s, "x")
	other := accept(t, at)
	expect(t, other, "x")
	return other
}

func expect(t testing.TB, s *Stream, want string) {
	t.Helper()
	got, err := s.Receive(within(t))
	if err != nil {
		t.Fatalf("instead of %.60q: %v", want, err)
	}
	if string(got) != want {
		t.Fatalf("got %d bytes %.60q, want %d bytes %.60q", len(got), got, len(want), want)
	}
}

// eventually waits until a condition holds, checked whenever the stream changes.
func eventually(t testing.TB, s *Stream, holds func(*streamState) bool) {
	t.Helper()
	ctx := within(t)
	s.endpoint.mu.Lock()
	defer s.endpoint.mu.Unlock()
	for !holds(s.state) {
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		s.endpoint.wait(ctx.Done(), &s.changed)
	}
}

// expectReset expects the stream to end.
func expectReset(t testing.TB, s *Stream, reason string, remote bool) {
	t.Helper()
	message, err := s.Receive(within(t))
	reset, is := errors.AsType[*ResetError](err)
	if !is || reset.Reason != reason || reset.Remote != remote {
		t.Fatalf("got %.60q and error %v, want a reset %q, remote %t", message, err, reason, remote)
	}
	select {
	case <-s.Done():
	case <-within(t).Done():
		t.Fatal("Done is not closed")
	}
	if s.Err() == nil {
		t.Fatal("Err is nil")
	}
}
