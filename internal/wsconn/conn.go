package wsconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/coder/websocket"
)

// Conn is one end of a websocket and carries whole messages. Receive is for one
// goroutine, Send and Begin for one other; Prove, Close and Peer for any. It must
// be closed, whatever ended it.
type Conn struct {
	options Options
	peer    string
	wire    *wire
	raw     net.Conn // the innermost connection
	ws      *websocket.Conn
	pings   *pingTracker
	tickers []*ticker

	ended context.Context // done when nothing more can be received; has the cause
	end   context.CancelCauseFunc

	received []byte // result of the last Receive; used by the receiving goroutine
	share    *Share // its share of the budget

	closeOnce sync.Once
	closeErr  error // result of Close; written in closeOnce
}

// newConn returns a connection before its handshake is complete.
func newConn(w *wire, peer string, o Options) *Conn {
	c := &Conn{options: o, peer: o.Label + " " + peer, wire: w, raw: innermost(w.Conn), pings: newPingTracker()}
	c.share = o.Budget.Share(o.Principal, c.onEvict)
	c.ended, c.end = context.WithCancelCause(context.Background())
	return c
}

// start completes c with the library's connection.
func (c *Conn) start(ws *websocket.Conn) *Conn {
	ws.SetReadLimit(-1) // the scanner enforces the limits
	c.wire.upgraded.Store(true)
	c.ws = ws
	c.tickers = []*ticker{startTicker(c.options.PingInterval, c.pinger()), startTicker(c.options.DeadAfter/deadChecks, c.deadPeerCheck())}
	return c
}

// onPing answers a ping instead of the library.
func (c *Conn) onPing(payload []byte) (libraryAnswers bool) {
	c.wire.outbox.sendPong(payload)
	return false
}

// Peer describes the peer: the label and its address.
func (c *Conn) Peer() string { return c.peer }

// onEvict makes Receive fail because the budget has evicted its share.
func (c *Conn) onEvict(why *BudgetError) {
	if c.end(why); context.Cause(c.ended) == error(why) {
		_ = c.wire.SetReadDeadline(pastTime)
	}
}

// fail ends the connection with cause: operations in progress return, and nothing
// more can be sent or received.
func (c *Conn) fail(cause error) {
	c.end(cause)
	c.wire.outbox.fail(cause)
	_ = c.wire.SetDeadline(pastTime)
}

// endedError returns the error for an operation on an ended connection.
func (c *Conn) endedError(what string) error {
	cause := context.Cause(c.ended)
	if cause == io.EOF {
		cause = net.ErrClosed
	}
	return c.wrapError(what, cause)
}

func (c *Conn) wrapError(what string, err error) error {
	return fmt.Errorf("failed to %s, %s: %w", what, c.peer, notNormal(err))
}

// notNormal replaces io.EOF, which stands for a normal end, by
// io.ErrUnexpectedEOF.
func notNormal(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
