package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// Timeouts of a shutdown.
const (
	// answerTimeout bounds the answers to earlier requests if the client may be gone:
	// a client that closes a websocket need not read what follows.
	answerTimeout = 2 * time.Second
	// stalledAnswerTimeout bounds the time without progress if the client still reads,
	// as one that closes the input of a program does.
	stalledAnswerTimeout = time.Minute
	// stallCheckInterval is the interval of checking for progress.
	stallCheckInterval = 250 * time.Millisecond
	// flushTimeout bounds the send of an error before a close.
	flushTimeout = 2 * time.Second
)

// errClosedByClient is the cancellation cause of polls.
var errClosedByClient = errors.New("the client has ended the connection")

// shutDown ends the session after the client closed the connection normally. It answers
// earlier requests first, for a bounded time; polls are answered at once.
func (c *connection) shutDown() {
	c.mu.Lock()
	c.closedByClient = true
	c.mu.Unlock()
	c.cancelPolls(errClosedByClient)
	c.awaitAnswers()
	c.flushOutgoing()
	c.cancelCalls(errServed)
	if c.session != nil && !c.session.takenOver.Load() {
		c.session.close(c)
	}
}

// isOver reports whether polls ended while the request, with context ctx, can still be
// answered.
func (c *connection) isOver(ctx context.Context) bool {
	return c.polls.Err() != nil && ctx.Err() == nil
}

// answered returns a channel that is closed when all requests are answered. It is called
// after the last request.
func (c *connection) answered() <-chan struct{} {
	all := make(chan struct{})
	c.Spawn(func() {
		c.answering.Wait()
		close(all)
	})
	return all
}

// awaitAnswers waits until all requests are answered, the client is gone, or no answer
// makes progress. A client that may be gone has only a bounded time.
func (c *connection) awaitAnswers() {
	answered := c.answered()
	tick := time.NewTicker(stallCheckInterval)
	defer tick.Stop()
	half, mayRead := c.conn.(jsonrpc.HalfCloser)
	timeout := answerTimeout
	if mayRead {
		timeout = stalledAnswerTimeout
	}
	sent, since := c.out.answered.Load(), time.Now()
	for {
		select {
		case <-answered:
			return
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			if latest := c.out.answered.Load(); mayRead && latest != sent {
				sent, since = latest, now
			}
			if now.Sub(since) >= timeout || mayRead && !half.Listens() {
				return
			}
		}
	}
}

// flushOutgoing sends what is queued, for a bounded time.
func (c *connection) flushOutgoing() {
	said := make(chan struct{})
	c.Spawn(func() {
		defer close(said)
		c.out.flushBlocking()
	})
	late := time.NewTimer(flushTimeout)
	defer late.Stop()
	select {
	case <-said:
	case <-late.C:
	}
}
