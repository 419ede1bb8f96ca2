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

// Conn is one end of a websocket that carries whole messages. Receive is for one
// goroutine, Send and Begin for one other; Prove, Close and Peer for any. It has
// to be closed, whatever ended it.
type Conn struct {
	options Options
	peer    string
	wire    *wire
	raw     net.Conn // the innermost connection
	ws      *websocket.Conn
	prover  *prover
	beats   []*beat

	over context.Context // done when nothing more can be received, with its cause
	end  context.CancelCauseFunc

	received []byte // what Receive returned last; of the receiving goroutine
	share    *Share // what that takes of the budget

	closing sync.Once
	closed  error // what Close returns; written in closing
}

// newConn returns a connection that is open but for its websocket.
func newConn(w *wire, peer string, o Options) *Conn {
	c := &Conn{options: o, peer: o.Label + " " + peer, wire: w, raw: innermost(w.Conn), prover: newProver()}
	c.share = o.Budget.Share(o.Principal, c.evicted)
	c.over, c.end = context.WithCancelCause(context.Background())
	return c
}

// begin makes c live on ws.
func (c *Conn) begin(ws *websocket.Conn) *Conn {
	ws.SetReadLimit(-1) // the watch has counted already
	c.wire.begun.Store(true)
	c.ws = ws
	c.beats = []*beat{every(c.options.PingInterval, c.keepAlive()), every(c.options.DeadAfter/looksPerDeath, c.lookForDeath())}
	return c
}

// pinged answers a ping, in place of the library.
func (c *Conn) pinged(payload []byte) (libraryAnswers bool) {
	c.wire.out.answer(payload)
	return false
}

// Peer names the other end: the label and its address.
func (c *Conn) Peer() string { return c.peer }

// evicted makes Receive return why what it has received so far has to give way.
func (c *Conn) evicted(why *BudgetError) {
	if c.end(why); context.Cause(c.over) == error(why) {
		_ = c.wire.SetReadDeadline(past)
	}
}

// lose ends the connection as lost: what is under way returns, and nothing more
// can be sent or received.
func (c *Conn) lose(cause error) {
	c.end(cause)
	c.wire.out.fail(cause)
	_ = c.wire.SetDeadline(past)
}

// lost returns why what was tried failed when the connection was over.
func (c *Conn) lost(what string) error {
	cause := context.Cause(c.over)
	if cause == io.EOF {
		cause = net.ErrClosed
	}
	return c.failed(what, cause)
}

func (c *Conn) failed(what string, err error) error {
	return fmt.Errorf("failed to %s, %s: %w", what, c.peer, notNormal(err))
}

// notNormal returns err so that it is not io.EOF, which is the word for a normal
// end and not for a connection that broke off.
func notNormal(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
