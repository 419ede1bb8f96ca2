package relay

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestEndpoint_MessagesBothWays(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "hello")
	p := accept(t, x)
	if p.ID() != s.ID() {
		t.Errorf("the stream is %q at one end and %q at the other", s.ID(), p.ID())
	}
	expect(t, p, "hello")
	send(t, p, "world")
	expect(t, s, "world")
	large := strings.Repeat("0123456789abcdef", 1<<16)
	var sending sync.WaitGroup
	sending.Go(func() { send(t, s, large); send(t, s, "after") })
	expect(t, p, large)
	expect(t, p, "after")
	sending.Wait()
	if err := s.WaitAcknowledged(within(t)); err != nil {
		t.Error(err)
	}
	s.Reset(ReasonClosed)
	expectReset(t, s, ReasonClosed, false)
	expectReset(t, p, ReasonClosed, true)
}

// Many streams exchange messages while their carriers are replaced.
func TestEndpoint_CarrierCuts_LoseNothing(t *testing.T) {
	const streams, messages = 8, 200
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	received := make(chan struct{}, 2*streams*messages)
	var cutting, talking sync.WaitGroup
	cutting.Go(func() {
		for over := false; !over; {
			cut := connect(t, h, x)
			for range 50 {
				if _, more := <-received; !more {
					over = true
				}
			}
			cut()
		}
	})
	text := func(stream string, i int) string {
		return fmt.Sprintf("%s %d %s", stream, i, strings.Repeat("x", i*i%5000))
	}
	for range streams {
		s, err := h.Open("")
		if err != nil {
			t.Fatal(err)
		}
		talking.Go(func() {
			for i := range messages {
				if err := s.Send(within(t), []byte(text(s.ID(), i))); err != nil {
					t.Error(err)
				}
			}
		})
		talking.Go(func() {
			for i := range messages {
				if got, err := s.Receive(within(t)); err != nil || string(got) != text(s.ID(), i) {
					t.Errorf("message %d came back as %.50q, %v", i, got, err)
				}
				received <- struct{}{}
			}
		})
	}
	for range streams {
		p := accept(t, x)
		talking.Go(func() {
			for range messages {
				got, err := p.Receive(within(t))
				if err == nil {
					err = p.Send(within(t), got)
				}
				if err != nil {
					t.Error(err)
				}
				received <- struct{}{}
			}
		})
	}
	talking.Wait()
	close(received)
	cutting.Wait()
}

// closeCode is a carrier that records how it is closed.
type closeCode struct {
	*pipeEnd
	code chan int
}

func (c closeCode) Close(code int, reason string) error {
	c.code <- code
	return c.pipeEnd.Close(code, reason)
}

// The close code tells the peer whether another carrier will follow.
func TestRun_CloseCodes(t *testing.T) {
	run := func(ctx context.Context, e *Endpoint, end func()) int {
		near, _ := pipe()
		c := closeCode{near, make(chan int, 1)}
		var running sync.WaitGroup
		running.Go(func() { _ = e.Run(ctx, c) })
		end()
		running.Wait()
		return <-c.code
	}
	e := endpoint(t, Config{})
	ctx, stop := context.WithCancelCause(context.Background())
	if code := run(ctx, e, func() { stop(nil) }); code != codeGoingAway {
		t.Errorf("an endpoint that may go on closed with %d", code)
	}
	isRunning := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.running
	}
	closeRunning := func() {
		for !isRunning() {
			runtime.Gosched()
		}
		_ = e.Close(ReasonClosed)
	}
	if code := run(context.Background(), e, closeRunning); code != codeNormal {
		t.Errorf("an endpoint that is closed closed with %d", code)
	}
}
