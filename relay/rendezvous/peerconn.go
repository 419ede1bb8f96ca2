package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// frameConn sends and receives frames. *wsconn.Conn in binary mode is one.
type frameConn interface {
	ReceiveOwned() ([]byte, error) // nil is a message that is not binary
	Send(frame []byte) error       // does not retain the frame
	TrySend(frame []byte) bool     // is Send if that need not wait, and else does nothing
	Close(code int, reason string) error
}

// CodeSuperseded is the close code for the websocket of an executor that was
// replaced by a later registration.
const CodeSuperseded = 4001

const reasonSuperseded = "superseded"

// maxEndedIDs is how many streams that the hub ended a peerConn remembers.
const maxEndedIDs = 1024

// peerConn is the websocket of an executor or a harness, with its send queues.
type peerConn struct {
	conn      frameConn // set before serve
	route     *executorRoute
	principal string
	resumable bool   // its peer retransmits, so that streams survive the connection
	capacity  int    // of an executor: its stream limit; 0 if unknown
	number    uint64 // later connections have higher numbers

	wake    notify.Signal // there may be something to send
	closing chan struct{} // closed when the connection is to be closed

	// Guarded by route.mu.
	serving     bool                 // serve was called
	sending     bool                 // a goroutine sends
	unsent      []byte               // the next frame, which was taken from its queue
	resets      []pendingReset       // sent before everything else
	ready       []*sendQueue         // queues with frames, served round-robin
	queuedBytes int64                // bytes in the queues of ready
	streams     map[*stream]struct{} // of a harness
	endedIDs    map[string]struct{}  // ids of streams that the hub ended
	endedOrder  []string             // the same, oldest first
	isClosing   bool                 // it is to be closed, with code and reason
	failed      bool                 // nothing more can be received or sent
	peerEnded   bool                 // that is why it is closed
	grace       *gracePeriod         // of its peer, once disconnected; nil if nothing waits for its return
	code        int
	reason      string
}

// pendingReset is a reset to be sent.
type pendingReset struct{ stream, reason string }

func newPeerConn(principal string, resumable bool) *peerConn {
	return &peerConn{
		principal: principal, resumable: resumable,
		wake: notify.NewSignal(), closing: make(chan struct{}),
		streams: make(map[*stream]struct{}), endedIDs: make(map[string]struct{}),
	}
}

// serve passes received frames to receive, which may queue them for another connection, and
// sends queued ones, until the
// websocket ends or startClose is called. It calls disconnect before it closes
// the websocket, and returns when no goroutine is left: with the receive error if
// the peer ended the connection, or nil if the hub did. There is no grace period
// for a peer that closed the websocket for good.
func (c *peerConn) serve(receive func(c *peerConn, frame []byte) (to *peerConn), disconnect func(*peerConn)) error {
	c.route.mu.Lock()
	c.serving = true
	c.route.mu.Unlock()
	var received error
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			frame, err := c.conn.ReceiveOwned()
			if err != nil {
				received = err
				c.fail(closeStatusFor(err))
				return
			}
			if to := receive(c, frame); to != nil {
				to.sendNow()
			}
		}
	})
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writeLoop()
	}()
	<-c.closing
	disconnect(c)
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
	code, reason := c.closeStatus()
	_ = c.conn.Close(code, reason)
	<-written
	reading.Wait()
	if !c.endedByPeer() {
		return nil
	}
	if received == io.EOF {
		c.route.peerClosed(c)
	}
	return received
}

// closeStatusFor returns the close code and reason for a receive error.
func closeStatusFor(err error) (code int, reason string) {
	if tooLarge, ok := errors.AsType[*wsconn.TooLargeError](err); ok {
		return wsconn.CodeTooLarge, tooLarge.Error()
	}
	if overBudget, ok := errors.AsType[*wsconn.BudgetError](err); ok {
		return codeTryAgainLater, overBudget.Reason()
	}
	return wsconn.CodeNormal, ""
}

// codeTryAgainLater is registered for RFC 6455.
const codeTryAgainLater = 1013

// drainTimeout bounds how long a closing connection waits for its last resets to
// be sent.
const drainTimeout = 2 * time.Second

// writeLoop sends queued frames until the connection is closed.
func (c *peerConn) writeLoop() {
	for {
		frame, more := c.next()
		switch {
		case !more:
			return
		case frame == nil:
			<-c.wake.C()
			continue
		case c.conn.Send(frame) != nil:
			c.fail(wsconn.CodeNormal, "")
			return
		}
		c.sent(frame, true)
	}
}

// sendNow sends the next frame in the calling goroutine, if that is possible without waiting
// and no other goroutine sends: that takes less time than waking writeLoop, to which it
// leaves the rest.
func (c *peerConn) sendNow() {
	frame, _ := c.next()
	if frame == nil {
		return
	}
	if more := c.sent(frame, c.conn.TrySend(frame)); more {
		c.wake.Set()
	}
}

// sent ends the sending of a frame. One that was not sent will be the next. It reports
// whether there is one.
func (c *peerConn) sent(frame []byte, sent bool) (more bool) {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	if c.sending = false; sent {
		buffers.Put(frame)
	} else {
		c.unsent = frame
	}
	return c.unsent != nil || len(c.resets)+len(c.ready) > 0 || c.isClosing
}

// next returns the next frame to send, which the caller owns until it calls sent: resets
// first, then round-robin among the streams. It is nil if there is none now, or another
// goroutine sends one; more is false if there will be none.
func (c *peerConn) next() (frame []byte, more bool) {
	r := c.route
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.failed {
		return nil, false
	}
	if c.sending {
		return nil, true
	}
	if frame, more = c.take(); frame != nil {
		c.sending = true
	}
	return frame, more
}

// take is next for a connection that has not failed. mu is held.
func (c *peerConn) take() (frame []byte, more bool) {
	r := c.route
	if frame = c.unsent; frame != nil {
		c.unsent = nil
		return frame, true
	}
	if len(c.resets) > 0 {
		reset := c.resets[0]
		c.resets = c.resets[1:]
		return relay.ResetFrame(reset.stream, reset.reason), true
	}
	if c.isClosing {
		return nil, false
	}
	if len(c.ready) == 0 {
		c.ready = nil
		return nil, true
	}
	q := c.ready[0]
	c.ready[0] = nil
	c.ready = c.ready[1:]
	before := beyondReserved(q.bytes)
	frame = q.pop()
	if q == q.stream.up {
		q.stream.sentToExecutor = true
	}
	c.queuedBytes -= weight(frame)
	r.queueBudget.release(q.stream.principal, before-beyondReserved(q.bytes))
	switch {
	case len(q.frames) > 0:
		c.ready = append(c.ready, q)
	case q.endsStream:
		q.conn = nil
		r.endStream(q.stream, "", false, false)
	default:
		q.conn = nil
	}
	return frame, true
}

// sendReset queues a reset. If the connection of an executor ends before it is sent,
// detachExecutor keeps it for the executor's return. mu is held.
func (c *peerConn) sendReset(id, reason string) {
	if _, known := c.endedIDs[id]; !known {
		c.endedIDs[id] = struct{}{}
		if c.endedOrder = append(c.endedOrder, id); len(c.endedOrder) > maxEndedIDs {
			delete(c.endedIDs, c.endedOrder[0])
			c.endedOrder = c.endedOrder[1:]
		}
	}
	c.resets = append(c.resets, pendingReset{stream: id, reason: reason})
	if len(c.resets) > c.route.limits.StreamsPerExecutor+c.route.limits.StreamsPerConnection {
		c.startClose(wsconn.CodePolicy, relay.ReasonSlowConsumer)
	}
	c.wake.Set()
}

// startClose closes the connection with code and reason after the queued resets
// are sent. Only the first call counts. mu is held.
func (c *peerConn) startClose(code int, reason string) {
	if c.isClosing {
		return
	}
	c.isClosing, c.code, c.reason = true, code, reason
	close(c.closing)
	c.wake.Set()
}

// fail records that nothing more can be received or sent.
func (c *peerConn) fail(code int, reason string) {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	c.failed = true
	c.peerEnded = c.peerEnded || !c.isClosing
	c.startClose(code, reason)
	c.wake.Set()
}

// endedByPeer reports whether the peer, or a failure, ended the connection.
func (c *peerConn) endedByPeer() bool {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	return c.peerEnded
}

func (c *peerConn) closeStatus() (code int, reason string) {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	return c.code, c.reason
}

// endAttrs describes the end of the connection for the log. err is the result of
// serve.
func (c *peerConn) endAttrs(err error) []any {
	code, reason := c.closeStatus()
	text := ""
	if err != nil {
		text = err.Error()
	}
	return []any{"code", code, "reason", reason, "error", text}
}

// close is startClose for callers that do not hold the route's mu.
func (c *peerConn) close(code int, reason string) {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	c.startClose(code, reason)
}

// evict closes the connection to free capacity for another one.
func (c *peerConn) evict(why error) {
	reason := "try again later"
	if full, ok := errors.AsType[*auth.Error](why); ok {
		reason = fmt.Sprintf("%s is reached: try again in %v", full.Setting, full.RetryAfter)
	}
	c.close(codeTryAgainLater, reason)
}
