package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

const (
	// watermarkInterval is how long events may be unproven before they are
	// proven, if they do not fill a part of the window sooner and are not the end
	// of a process, after which clients often leave.
	watermarkInterval = 100 * time.Millisecond
	// watermarkPart is the part of a window of unproven events that is proven at
	// once.
	watermarkPart = 4
	// proofPatience is how long the first watermark may be unanswered. A client
	// that does not answer it in time may be unable to, and must not stall. One
	// that is only slow loses what it has not read if its connection breaks then.
	proofPatience = 10 * time.Second
)

// patienceSlice is what patience with clients is made of. A slice that lasts longer
// is one all the same: a machine that stands still for a while has its clients
// stand still, too.
const patienceSlice = time.Second

// trust is whether what was written counts as read.
type trust int

const (
	trustUnknown trust = iota // the first watermark was not answered yet
	trustProofs               // only what was proven counts
	trustWriting              // the client proves nothing: what was written counts
)

// watermarks find out what the client has read: a ping is sent after events, and
// its answer proves that they were read. What is proven the core is told, which
// then keeps it no longer.
type watermarks struct {
	connection *connection
	due        chan struct{} // has a token when something is to be proven at once

	// Guarded by connection.mu.
	dirty     map[*process]struct{} // with something to be proven or acknowledged
	bytes     int                   // said and not yet put under a watermark
	events    int
	running   bool
	trust     trust
	waitBytes int // what is due at once
	waitCount int
}

func (w *watermarks) begin(c *connection) {
	w.connection = c
	w.due = make(chan struct{}, 1)
	w.dirty = make(map[*process]struct{})
}

// window sets how much may be unacknowledged of one process.
func (w *watermarks) window(bytes, events uint64) {
	c := w.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waitBytes = int(min(bytes, 1<<30)) / watermarkPart
	w.waitCount = int(min(events, 1<<30)) / watermarkPart
}

// note has what was said of a process proven in time. connection.mu is held.
func (w *watermarks) note(p *process, bytes, events int) {
	w.dirty[p] = struct{}{}
	w.bytes += bytes
	w.events += events
	p.unmarked += bytes
	isFull := p.manner.window > 0 && p.unmarked >= p.manner.window/watermarkPart
	if isFull || w.bytes >= w.waitBytes || w.events >= w.waitCount {
		w.hurry()
	}
	if !w.running && w.connection.ctx.Err() == nil {
		w.running = true
		w.connection.spawn(w.run)
	}
}

// hurry has what was noted proven at once.
func (w *watermarks) hurry() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// run sets watermarks, one after the other, until there is nothing to be proven.
func (w *watermarks) run() {
	c := w.connection
	timer := time.NewTimer(watermarkInterval)
	defer timer.Stop()
	for {
		select {
		case <-w.due:
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
		marks := w.set()
		if w.prove() != nil {
			return // the connection is lost, or over
		}
		w.passed(marks)
		if w.isDone() {
			return
		}
		timer.Reset(watermarkInterval)
	}
}

// set returns what a watermark that is set now would prove.
func (w *watermarks) set() []proven {
	c := w.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	marks := make([]proven, 0, len(w.dirty))
	for p := range w.dirty {
		marks = append(marks, p.provable())
		p.unmarked = 0
	}
	clear(w.dirty)
	w.bytes, w.events = 0, 0
	select { // that was for these
	case <-w.due:
	default:
	}
	return marks
}

// prove blocks until the client has read what was said, as far as it can be
// trusted to tell.
func (w *watermarks) prove() error {
	c := w.connection
	switch w.trusts() {
	case trustWriting:
		return causeOf(c.ctx)
	case trustProofs:
		return w.settle(c.conn.Prove(c.ctx))
	}
	first := make(chan error, 1)
	c.spawn(func() { first <- w.settle(c.conn.Prove(c.ctx)) })
	slice := time.NewTicker(patienceSlice)
	defer slice.Stop()
	for range proofPatience / patienceSlice {
		select {
		case err := <-first:
			return err
		case <-c.ctx.Done():
			return causeOf(c.ctx)
		case <-slice.C:
		}
	}
	w.believe(trustWriting)
	return nil
}

// settle draws the conclusion from what came of a watermark.
func (w *watermarks) settle(err error) error {
	switch {
	case err == nil:
		w.believe(trustProofs)
		return nil
	case isUnprovable(err):
		w.believe(trustWriting)
		return nil
	}
	return err
}

// isUnprovable reports whether the transport has no means to prove anything.
func isUnprovable(err error) bool { return errors.Is(err, jsonrpc.ErrCannotProve) }

func (w *watermarks) trusts() trust {
	w.connection.mu.Lock()
	defer w.connection.mu.Unlock()
	return w.trust
}

func (w *watermarks) believe(t trust) {
	w.connection.mu.Lock()
	defer w.connection.mu.Unlock()
	w.trust = t
}

// passed notes what was proven and tells the core.
func (w *watermarks) passed(marks []proven) {
	c, now := w.connection, time.Now()
	c.mu.Lock()
	news := make([]acknowledgement, 0, len(marks))
	for _, mark := range marks {
		p := mark.process
		if mark.generation == p.generation && !c.acknowledges {
			p.prove(mark, now)
		}
		news = p.appendNews(news)
		if p.isUnproven() && !c.acknowledges {
			w.dirty[p] = struct{}{}
		}
	}
	c.mu.Unlock()
	c.session.acknowledge(news)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, mark := range marks {
		c.forget(mark.process)
	}
}

// isDone reports whether nothing is left to be proven; somebody else then starts
// run again.
func (w *watermarks) isDone() bool {
	w.connection.mu.Lock()
	defer w.connection.mu.Unlock()
	w.running = len(w.dirty) > 0
	return !w.running
}

// acknowledgement is what the core is told of one process.
type acknowledgement struct {
	id  string
	seq uint64
}

// appendNews appends what the core does not know yet, if anything. mu is held.
func (p *process) appendNews(news []acknowledgement) []acknowledgement {
	seq, isNews := p.unacknowledged()
	if !isNews {
		return news
	}
	p.acknowledged = seq
	return append(news, acknowledgement{id: p.id, seq: seq})
}

func causeOf(ctx context.Context) error { return context.Cause(ctx) }
