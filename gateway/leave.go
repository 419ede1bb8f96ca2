package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// Times for what is said before a connection is closed.
const (
	// answerTime is for the answers to what was asked before a normal end if the
	// client may have gone: who closes a websocket need not read what still comes.
	answerTime = 2 * time.Second
	// listenerTime is without any of them being said, if the client still reads: who
	// ends the input of a program waits for its output.
	listenerTime = time.Minute
	// listenerLook is between two looks whether it does.
	listenerLook = 250 * time.Millisecond
	// lastWordsTime is for an error that precedes a close.
	lastWordsTime = 2 * time.Second
)

// errLeaving ends the waits of requests whose client has ended the connection.
var errLeaving = errors.New("the client has ended the connection")

// leave ends the session because the client ended the connection normally. What
// it asked before is answered first, for a bounded time: at once where it waits
// for something to happen.
func (c *connection) leave() {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	c.cancelPolls(errLeaving)
	if half, ok := c.conn.(jsonrpc.HalfCloser); ok {
		c.answerListener(half)
	} else {
		late := time.NewTimer(answerTime)
		defer late.Stop()
		select {
		case <-c.permits.drained():
		case <-late.C:
		case <-c.ctx.Done():
		}
	}
	c.sayLastWords()
	c.cancelCalls(errServed)
	if c.session != nil && !c.session.taken.Load() {
		c.session.close(c)
	}
}

// isOver reports whether a wait that began in polls is over because the client has
// left, while its request can still be answered. ctx is that of the request.
func (c *connection) isOver(ctx context.Context) bool {
	return c.polls.Err() != nil && ctx.Err() == nil
}

// answerListener waits until all is answered, the client has gone, or it was told
// nothing of an answer for too long.
func (c *connection) answerListener(half jsonrpc.HalfCloser) {
	drained := c.permits.drained()
	look := time.NewTicker(listenerLook)
	defer look.Stop()
	answered, since := c.out.answered.Load(), time.Now()
	for {
		select {
		case <-drained:
			return
		case <-c.ctx.Done():
			return
		case now := <-look.C:
			if latest := c.out.answered.Load(); latest != answered {
				answered, since = latest, now
			}
			if !half.Listens() || now.Sub(since) >= listenerTime {
				return
			}
		}
	}
}

// sayLastWords sends what was queued before the connection is closed, for a
// bounded time.
func (c *connection) sayLastWords() {
	said := make(chan struct{})
	c.spawn(func() {
		defer close(said)
		c.out.sayPosted()
	})
	late := time.NewTimer(lastWordsTime)
	defer late.Stop()
	select {
	case <-said:
	case <-late.C:
	}
}
