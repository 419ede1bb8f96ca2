package wsconn

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Conn is one end of a websocket and carries whole messages. Receive is for one
// goroutine, Send and Begin for one other; Prove, Close and Peer for any. It must
// be closed, whatever ended it.
type Conn struct {
	options Options
	peer    string
	conn    net.Conn // TLS if in use; supports deadlines
	raw     net.Conn // the innermost connection
	in      *frameReader
	out     *outbox
	pings   *pingTracker
	tickers []*ticker

	ended context.Context // done when nothing more can be received; has the cause
	end   context.CancelCauseFunc

	received []byte // result of the last Receive; used by the receiving goroutine
	share    *Share // its share of the budget

	closeOnce sync.Once
	closeErr  error // result of Close; written in closeOnce
}

// newConn returns a connection after its handshake. It reads from in and writes to
// out, and sets the deadlines of conn and closes it. Without TLS it may write to the
// socket of conn, too.
func newConn(conn net.Conn, in io.Reader, out io.Writer, isClient, hasTLS bool, peer string, o Options) *Conn {
	c := &Conn{options: o, peer: o.Label + " " + peer, conn: conn, raw: innermost(conn), pings: newPingTracker()}
	c.in = newFrameReader(in, !isClient, o, c.onControl)
	c.out = newOutbox(out, isClient)
	if !hasTLS {
		c.out.tryWrite = tryWriter(c.raw)
	}
	c.share = o.Budget.Share(o.Principal, c.onEvict)
	c.ended, c.end = context.WithCancelCause(context.Background())
	return c
}

// onControl processes a ping or a pong of the peer.
func (c *Conn) onControl(opcode byte, payload []byte) {
	if opcode == opPing {
		c.out.sendPong(payload)
	} else {
		c.pings.pong(payload)
	}
}

// Peer describes the peer: the label and its address.
func (c *Conn) Peer() string { return c.peer }

// onEvict makes Receive fail because the budget has evicted its share.
func (c *Conn) onEvict(why *BudgetError) {
	if c.end(why); context.Cause(c.ended) == error(why) {
		_ = c.conn.SetReadDeadline(pastTime)
	}
}

// fail ends the connection with cause: operations in progress return, and nothing
// more can be sent or received.
func (c *Conn) fail(cause error) {
	c.end(cause)
	c.out.fail(cause)
	_ = c.conn.SetDeadline(pastTime)
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

// pastTime is a deadline that interrupts pending operations.
var pastTime = time.Unix(1, 0)
