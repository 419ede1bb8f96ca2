package wsconn_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// trickling begins a message on a new connection, and waits until size bytes are
// received.
func trickling(t *testing.T, url string, size int) *rawConn {
	t.Helper()
	c := raw(t, url)
	c.send(t, frame(text, strings.Repeat("x", size)), frame(final|ping, "read?"))
	c.expect(t, final|pong, "read?")
	return c
}

// Messages that arrive slowly do not exceed the budget together, and small
// messages are not affected.
func TestBudget_SlowMessages_AreBounded(t *testing.T) {
	const large, limit = 100_000, 300_000 // each takes a buffer of 112 KiB, of which a part is free
	budget := wsconn.NewBudget(limit)
	refusals := make(chan error, 1)
	url := listen(t, wsconn.Options{MessageBytes: 2 * large, Budget: budget}, func(c *wsconn.Conn) {
		for {
			message, err := c.Receive()
			var full *wsconn.BudgetError
			switch {
			case errors.As(err, &full):
				refusals <- errors.Join(err, c.Send([]byte("explained")), c.Close(wsconn.CodePolicy, "full"))
				return
			case err != nil:
				return
			}
			if err := c.Send(fmt.Appendf(nil, "got %d", len(message))); err != nil {
				t.Error(err)
			}
		}
	})
	var slow []*rawConn
	for range limit / (112<<10 - wsconn.OwnBytes) {
		slow = append(slow, trickling(t, url, large))
	}
	small := raw(t, url)
	for range 3 {
		small.send(t, frame(final|text, strings.Repeat("x", wsconn.OwnBytes-1)))
		small.expect(t, final|text, fmt.Sprint("got ", wsconn.OwnBytes-1))
	}
	refused := raw(t, url)
	refused.send(t, frame(text, strings.Repeat("x", large)))
	refused.expect(t, final|text, "explained")
	refused.expect(t, final|closing, closePayload(wsconn.CodePolicy, "full"))
	refused.send(t, normalClose)
	var full *wsconn.BudgetError
	if err := <-refusals; !errors.As(err, &full) || full.Limit != limit {
		t.Errorf("one more ends with %v", err)
	}
	for i, c := range slow {
		c.send(t, frame(final|continuation, "x"))
		c.expect(t, final|text, fmt.Sprint("got ", large+1))
		if i == 0 { // its bytes are released once the next message is awaited
			c.send(t, frame(final|text, "and more"))
			c.expect(t, final|text, "got 8")
			another := trickling(t, url, large)
			another.send(t, normalClose) // releases its bytes
			another.expect(t, final|closing, closePayload(1000, ""))
			if _, _, err := another.next(); err != io.EOF { // now they are released
				t.Errorf("after the close: %v", err)
			}
			trickling(t, url, large)
		}
	}
}

// The largest message needs no more of the budget than its size.
func TestBudget_LargestMessage_Fits(t *testing.T) {
	const limit = 300_000
	url := listen(t, wsconn.Options{MessageBytes: limit, Budget: wsconn.NewBudget(limit)}, echo)
	c := raw(t, url)
	for range 2 {
		largest := strings.Repeat("x", limit)
		c.send(t, frame(final|text, largest))
		c.expect(t, final|text, largest)
	}
}

func TestShare_Resize(t *testing.T) {
	const holders, limit = 8, 3 * 1000
	budget := wsconn.NewBudget(limit)
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			share := budget.Share("p", nil)
			for i := range 1000 {
				if !share.Resize(wsconn.OwnBytes) {
					t.Error("what is its own was refused")
				}
				if share.Resize(wsconn.OwnBytes+1000) && i%2 == 0 {
					share.Resize(0)
				}
			}
			share.End()
			share.End()
			if share.Resize(wsconn.OwnBytes + 1) {
				t.Error("a share that has ended took something")
			}
		})
	}
	all.Wait()
	one := budget.Share("p", nil)
	if one.Resize(wsconn.OwnBytes+limit+1) || !one.Resize(wsconn.OwnBytes+limit) {
		t.Error("what was given back is not all that there is")
	}
	if budget.Share("p", nil).Resize(wsconn.OwnBytes + 1) {
		t.Error("there was more than the limit")
	}
	if unbounded := (*wsconn.Budget)(nil).Share("", nil); !unbounded.Resize(1 << 62) {
		t.Error("a share of no budget has a bound")
	}
}

// A share within its equal part gets the bytes of the heaviest principal; one
// beyond it gets only those of stalled shares.
func TestFullBudget_GivesEqualParts(t *testing.T) {
	const own, limit = wsconn.OwnBytes, 3000
	for _, c := range []struct {
		name      string
		principal string
		bytes     int64
		minRate   int64
		want      bool
		evicted   int
	}{
		{"of another principal, within its part", "b", 1500, 0, true, 2},
		{"of another principal, beyond its part", "b", 1501, 0, false, 0},
		{"of another principal, beyond its part, others stalled", "b", 3000, 1 << 40, true, 3},
		{"of the same principal, within its part", "a", 750, 0, true, 1},
		{"of the same principal, beyond its part", "a", 751, 0, false, 0},
		{"of the same principal, beyond its part, others stalled", "a", 1001, 1 << 40, true, 2},
		{"of more than there is", "b", 3001, 1 << 40, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			budget := wsconn.NewBudget(limit)
			budget.MinRate, budget.Setting = c.minRate, "setting"
			evicted := 0
			for range 3 {
				holder := budget.Share("a", func(e *wsconn.BudgetError) {
					evicted++
					if !e.Evicted || e.Limit != limit || !strings.Contains(e.Error(), "setting") || !strings.Contains(e.Reason(), "setting") {
						t.Errorf("evicted by %#v: %v", e, e)
					}
				})
				if !holder.Resize(own + 1000) {
					t.Fatal("a holder was refused")
				}
			}
			share := budget.Share(c.principal, nil)
			if got := share.Resize(own + c.bytes); got != c.want || evicted != c.evicted {
				t.Errorf("Hold = %v, and %d gave way; want %v, %d", got, evicted, c.want, c.evicted)
			}
			share.End()
			if rest := budget.Share("c", nil); !rest.Resize(own + int64(c.evicted)*1000) {
				t.Error("what gave way is not there for others")
			}
		})
	}
}
