package relay

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

func TestRun_Concurrent_Fails(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	s := openReliable(t, h)
	second, peer := pipe()
	if err := h.Run(t.Context(), second); !errors.Is(err, ErrRunning) {
		t.Errorf("a second carrier was served: %v", err)
	}
	if _, err := peer.ReceiveOwned(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second carrier was not closed: %v", err)
	}
	send(t, s, "hello")
	expect(t, accept(t, x), "hello")
}

func TestRun_ReturnsCause(t *testing.T) {
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

// Resets are sent before the carrier is closed.
func TestClose_SendsResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
		connect(t, h, x)
		var streams []*Stream
		for range 20 {
			s := openReliable(t, h)
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

// stuck is a carrier whose Send blocks until it is closed.
type stuck struct{ *pipeEnd }

func (s stuck) Send([]byte) error {
	<-s.out.done
	return net.ErrClosed
}

// Close unblocks every blocking call.
func TestClose_UnblocksAllCalls(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := openReliable(t, h)
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

// The carrier is lost for good.
func TestStream_SilentPeer_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
		cut := connect(t, h, x)
		s := openReliable(t, h)
		p := acceptPeer(t, s, x)
		cut()
		<-s.Done()
		<-p.Done()
		expectReset(t, s, ReasonPeerSilent, false)
		expectReset(t, p, ReasonPeerSilent, false)
	})
}

// A stream that is not received from blocks only its own sender, and buffers a
// bounded amount.
func TestStream_Unread_BlocksOnlyItsSender(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: 62 << 10}), endpoint(t, Config{})
	connect(t, h, x)
	s, other := openReliable(t, h), openReliable(t, h)
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
	eventually(t, s, func(one *streamState) bool { return len(one.send.queue) == DefaultWindowFrames })
	x.mu.Lock()
	if held := p.state.receive.queuedBytes + p.state.receive.heldBytes + len(p.state.receive.partial); held > DefaultQueueBytes+DefaultWindowBytes+200_000 {
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

// A harness learns that its stream is gone after the executor restarted.
func TestStream_RestartedExecutor_Ends(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "hello")
	expect(t, accept(t, x), "hello")
	if err := s.WaitAcknowledged(within(t)); err != nil {
		t.Fatal(err)
	}
	cut()
	connect(t, h, endpoint(t, Config{}))
	expectReset(t, s, ReasonUnknownStream, true)
}
