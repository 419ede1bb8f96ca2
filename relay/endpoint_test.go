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
	const streams, messages = 8, 300
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	over := make(chan struct{})
	var cutting, talking sync.WaitGroup
	cutting.Go(func() {
		for {
			cut := connect(t, h, x)
			for range 200 {
				select {
				case <-over:
					return
				default:
				}
				h.mu.Lock()
				h.mu.Unlock()
				x.mu.Lock()
				x.mu.Unlock()
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
				send(t, s, text(s.ID(), i))
			}
		})
		talking.Go(func() {
			for i := range messages {
				expect(t, s, text(s.ID(), i))
			}
		})
	}
	for range streams {
		p := accept(t, x)
		talking.Go(func() {
			for i := range messages {
				expect(t, p, text(p.ID(), i))
				send(t, p, text(p.ID(), i))
			}
		})
	}
	talking.Wait()
	close(over)
	cutting.Wait()
}
