package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestMessagesBothWays(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	s := opened(t, h)
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

// TestCarriersThatAreCut has many streams talk while their carriers are replaced.
func TestCarriersThatAreCut(t *testing.T) {
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
