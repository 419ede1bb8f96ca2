package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

func TestOneCarrierAtATime(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	s := opened(t, h)
	second, peer := pipe()
	if err := h.Run(t.Context(), second); !errors.Is(err, ErrRunning) {
		t.Errorf("a second carrier was served: %v", err)
	}
	if _, err := peer.Receive(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second carrier was not closed: %v", err)
	}
	send(t, s, "hello")
	expect(t, accept(t, x), "hello")
}

func TestRunReturnsWhy(t *testing.T) {
	h := endpoint(t, Config{Role: Harness})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	here, _ := pipe()
	if err := h.Run(ctx, here); !errors.Is(err, why) {
		t.Errorf("Run returned %v", err)
	}
	here, there := pipe()
	_ = there.Close(0, "")
	if err := h.Run(t.Context(), here); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
	if err := h.Close(ReasonGoingAway); err != nil {
		t.Error(err)
	}
	here, _ = pipe()
	if err := h.Run(t.Context(), here); !errors.Is(err, ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
}

// TestCloseTellsThePeer shows that resets leave before the carrier is closed.
func TestCloseTellsThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
		connect(t, h, x)
		var streams []*Stream
		for range 20 {
			s := opened(t, h)
			send(t, s, "hello")
			streams = append(streams, s)
		}
		for range streams {
			expect(t, accept(t, x), "hello")
		}
		if err := x.Close(ReasonGoingAway); err != nil {
			t.Error(err)
		}
		for _, s := range streams {
			expectReset(t, s, ReasonGoingAway, true)
		}
	})
}

// stuck is a carrier that takes nothing until it is closed.
type stuck struct{ *pipeEnd }

func (s stuck) Send([]byte) error {
	<-s.out.over
	return net.ErrClosed
}

// TestCloseDuringEverything closes endpoints while all calls that block do so.
func TestCloseDuringEverything(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := opened(t, h)
	send(t, s, "hello")
	p := accept(t, x)
	expect(t, p, "hello")
	cut()
	left, right := pipe()
	var calls sync.WaitGroup
	ended := func(call func() error) {
		calls.Go(func() {
			if err := call(); err == nil {
				t.Error("a call that was to block succeeded")
			}
		})
	}
	ctx := within(t)
	ended(func() error { return h.Run(ctx, stuck{left}) })
	ended(func() error { return x.Run(ctx, stuck{right}) })
	for _, one := range []*Stream{s, p} {
		for range 3 {
			ended(func() error {
				for {
					if err := one.Send(ctx, make([]byte, 1<<20)); err != nil {
						return err
					}
				}
			})
			ended(func() error { _, err := one.Receive(ctx); return err })
		}
		ended(func() error {
			if err := one.Send(ctx, []byte("x")); err != nil {
				return err
			}
			return one.WaitAcknowledged(ctx)
		})
	}
	ended(func() error { _, err := x.Accept(ctx); return err })
	for _, e := range []*Endpoint{h, x, h, x} {
		calls.Go(func() { _ = e.Close(ReasonGoingAway) })
	}
	calls.Wait()
}

// TestSilentPeer loses the carrier for good.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
		cut := connect(t, h, x)
		s := opened(t, h)
		p := begun(t, s, x)
		cut()
		<-s.Done()
		<-p.Done()
		expectReset(t, s, ReasonPeerSilent, false)
		expectReset(t, p, ReasonPeerSilent, false)
	})
}

// TestStreamThatNobodyReads shows that it holds up its own sender alone, and how
// much is kept of what it was sent.
func TestStreamThatNobodyReads(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	s, other := opened(t, h), opened(t, h)
	ctx, cancel := context.WithCancelCause(within(t))
	var sending sync.WaitGroup
	sent := 0
	sending.Go(func() {
		for s.Send(ctx, make([]byte, 100_000)) == nil {
			sent++
		}
	})
	p := accept(t, x)
	send(t, other, "hello")
	q := accept(t, x)
	for range 2000 {
		expect(t, q, "hello")
		send(t, q, "hello")
		expect(t, other, "hello")
		send(t, other, "hello")
	}
	eventually(t, s, func(one *line) bool { return len(one.send.queue) == DefaultWindowFrames })
	x.mu.Lock()
	if held := p.line.receive.queued + p.line.receive.bytes + len(p.line.receive.partial); held > DefaultQueueBytes+DefaultWindowBytes+200_000 {
		t.Errorf("%d bytes are kept for an application that does not receive", held)
	}
	x.mu.Unlock()
	cancel(errors.New("enough"))
	sending.Wait()
	for range sent {
		if got, err := p.Receive(within(t)); err != nil || len(got) != 100_000 {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
}

// TestRestartedExecutor shows that a harness learns that its stream is gone.
func TestRestartedExecutor(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := opened(t, h)
	send(t, s, "hello")
	expect(t, accept(t, x), "hello")
	if err := s.WaitAcknowledged(within(t)); err != nil {
		t.Fatal(err)
	}
	cut()
	connect(t, h, endpoint(t, Config{}))
	expectReset(t, s, ReasonUnknownStream, true)
}
