package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/notify"
)

const (
	// watermarkInterval is the delay of a watermark after events, unless they fill a
	// part of the window or end a process. Clients often close the connection after
	// the end of a process.
	watermarkInterval = 100 * time.Millisecond
	// watermarkPart is the fraction of a window (1/n) that causes a watermark
	// immediately.
	watermarkPart = 4
	// proofTimeout bounds the wait for the first answer. A client that cannot answer
	// must not stall. A client that is only slow loses output that it has not read if
	// the connection breaks later.
	proofTimeout = 10 * time.Second
)

// timeoutSlice divides client timeouts. A slice that takes longer counts as one, so
// that a suspended machine does not expire the timeouts of its clients.
const timeoutSlice = time.Second

// ackMode says when output counts as read.
type ackMode int32

const (
	ackUnknown ackMode = iota // the first watermark is not answered yet
	ackProofs                 // when a watermark proves it
	ackWrites                 // when it is written: the client cannot prove anything
)

// watermarks find out what the client has read: a ping follows events, and its answer
// proves that the client has read them. They are then acknowledged to the server, which
// drops them.
type watermarks struct {
	table *processTable
	due   notify.Signal // a watermark is due now
	mode  atomic.Int32  // an ackMode

	// Guarded by processTable.mu.
	dirty     map[*process]struct{} // processes with something to prove or to acknowledge
	bytes     int                   // sent since the last watermark
	events    int
	running   bool
	waitBytes int // thresholds of an immediate watermark
	waitCount int
}

func (w *watermarks) begin(t *processTable) {
	w.table = t
	w.due = notify.NewSignal()
	w.dirty = make(map[*process]struct{})
}

// window sets the window of a process.
func (w *watermarks) window(bytes, events uint64) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	w.waitBytes = int(min(bytes, 1<<30)) / watermarkPart
	w.waitCount = int(min(events, 1<<30)) / watermarkPart
}

// note records sent events for the next watermark. processTable.mu is held.
func (w *watermarks) note(p *process, bytes, events int) {
	w.dirty[p] = struct{}{}
	w.bytes += bytes
	w.events += events
	p.unmarked += bytes
	isFull := p.mode.window > 0 && p.unmarked >= p.mode.window/watermarkPart
	if isFull || w.bytes >= w.waitBytes || w.events >= w.waitCount {
		w.due.Set()
	}
	if !w.running && w.table.conn.ctx.Err() == nil {
		w.running = true
		w.table.conn.Spawn(w.run)
	}
}

// run sets one watermark after the other until everything is proven.
func (w *watermarks) run() {
	t := w.table
	timer := time.NewTimer(watermarkInterval)
	defer timer.Stop()
	for {
		select {
		case <-w.due.C():
		case <-timer.C:
		case <-t.conn.ctx.Done():
			return
		}
		marks := w.set()
		if w.prove() != nil {
			return // the connection has ended
		}
		w.acknowledge(marks)
		if w.isDone() {
			return
		}
		timer.Reset(watermarkInterval)
	}
}

// set starts a watermark and returns what it will prove.
func (w *watermarks) set() []proof {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	marks := make([]proof, 0, len(w.dirty))
	for p := range w.dirty {
		marks = append(marks, p.pendingProof())
		p.unmarked = 0
	}
	clear(w.dirty)
	w.bytes, w.events = 0, 0
	w.due.Clear() // these events caused it
	return marks
}

// prove blocks until the client has read what was sent, as far as ackMode can tell.
func (w *watermarks) prove() error {
	t := w.table
	switch ackMode(w.mode.Load()) {
	case ackWrites:
		return context.Cause(t.conn.ctx)
	case ackProofs:
		return w.settle(t.conn.conn.Prove(t.conn.ctx))
	}
	first := make(chan error, 1)
	t.conn.Spawn(func() { first <- w.settle(t.conn.conn.Prove(t.conn.ctx)) })
	slice := time.NewTicker(timeoutSlice)
	defer slice.Stop()
	for range proofTimeout / timeoutSlice {
		select {
		case err := <-first:
			return err
		case <-t.conn.ctx.Done():
			return context.Cause(t.conn.ctx)
		case <-slice.C:
		}
	}
	w.mode.Store(int32(ackWrites))
	return nil
}

// settle sets the mode by the result of a watermark.
func (w *watermarks) settle(err error) error {
	mode := ackProofs
	if isUnprovable(err) {
		mode, err = ackWrites, nil
	}
	if err == nil {
		w.mode.Store(int32(mode))
	}
	return err
}

// isUnprovable reports whether the transport has no pings.
func isUnprovable(err error) bool { return errors.Is(err, jsonrpc.ErrCannotProve) }

// acknowledge records proofs and acknowledges them to the server.
func (w *watermarks) acknowledge(marks []proof) {
	t, now := w.table, time.Now()
	t.mu.Lock()
	acks := make([]acknowledgement, 0, len(marks))
	for _, mark := range marks {
		p := mark.process
		if mark.generation == p.generation {
			p.prove(mark, now)
		}
		acks = p.appendAcknowledgement(acks)
		if p.isUnproven() {
			w.dirty[p] = struct{}{}
		}
		t.forget(p)
	}
	t.mu.Unlock()
	t.conn.session.acknowledge(acks)
}

// isDone reports whether everything is proven. note then starts run again.
func (w *watermarks) isDone() bool {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	w.running = len(w.dirty) > 0
	return !w.running
}

// acknowledgement is for the server, of one process.
type acknowledgement struct {
	id  string
	seq uint64
}

// appendAcknowledgement appends what the server does not know yet, if anything. mu is
// held.
func (p *process) appendAcknowledgement(acks []acknowledgement) []acknowledgement {
	seq, pending := p.unacknowledged()
	if !pending {
		return acks
	}
	p.acknowledged = seq
	return append(acks, acknowledgement{id: p.id, seq: seq})
}
