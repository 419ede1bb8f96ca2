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
	watermarkPart = 8
	// proofTimeout bounds the wait for the first answer. A client that cannot answer
	// must not stall. A client that is only slow loses output that it has not read if
	// the connection breaks later.
	proofTimeout = 10 * time.Second
)

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
	life    *lifetime
	table   *processTable
	session *session      // set by open
	due     notify.Signal // a watermark is due now
	mode    atomic.Int32  // an ackMode

	// Guarded by table.mu.
	dirty     map[*process]struct{} // processes with something to prove or to acknowledge
	bytes     int                   // sent since the last watermark
	events    int
	running   bool
	waitBytes int // thresholds of an immediate watermark
	waitCount int
}

func newWatermarks(life *lifetime, table *processTable) *watermarks {
	return &watermarks{life: life, table: table, due: notify.NewSignal(), dirty: make(map[*process]struct{})}
}

// open sets the session, before its first event.
func (w *watermarks) open(s *session) {
	w.session = s
	w.waitBytes = int(min(s.windowBytes, 1<<30)) / watermarkPart
	w.waitCount = int(min(s.windowEvents, 1<<30)) / watermarkPart
}

// note records sent events for the next watermark. table.mu is held.
func (w *watermarks) note(p *process, bytes, events int) {
	w.dirty[p] = struct{}{}
	w.bytes += bytes
	w.events += events
	p.unmarked += bytes
	isFull := p.mode.window > 0 && p.unmarked >= p.mode.window/watermarkPart
	if isFull || w.bytes >= w.waitBytes || w.events >= w.waitCount {
		w.due.Set()
	}
	if !w.running && w.life.ctx.Err() == nil {
		w.running = true
		w.life.Spawn(w.run)
	}
}

// run sets one watermark after the other until everything is proven.
func (w *watermarks) run() {
	timer := time.NewTimer(watermarkInterval)
	defer timer.Stop()
	for {
		select {
		case <-w.due.C():
		case <-timer.C:
		case <-w.life.ctx.Done():
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
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
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
	switch ackMode(w.mode.Load()) {
	case ackWrites:
		return context.Cause(w.life.ctx)
	case ackProofs:
		return w.settle(w.life.conn.Prove(w.life.ctx))
	}
	first := make(chan error, 1)
	w.life.Spawn(func() { first <- w.settle(w.life.conn.Prove(w.life.ctx)) })
	slice := time.NewTicker(timeoutSlice)
	defer slice.Stop()
	for range proofTimeout / timeoutSlice {
		select {
		case err := <-first:
			return err
		case <-w.life.ctx.Done():
			return context.Cause(w.life.ctx)
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
	now := time.Now()
	w.table.mu.Lock()
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
		w.table.forget(p)
	}
	w.table.mu.Unlock()
	w.session.acknowledge(acks)
}

// isDone reports whether everything is proven. note then starts run again.
func (w *watermarks) isDone() bool {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	w.running = len(w.dirty) > 0
	return !w.running
}

// startBacklogTimeout starts the timeout after which backlogs count as confirmed.
func (w *watermarks) startBacklogTimeout() {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for _, p := range w.table.records {
		p.backlogSlices = backlogSlices
	}
	if w.session.resumed {
		w.life.Spawn(w.runBacklogTimeout)
	}
}

// runBacklogTimeout runs until there is no backlog. The ticker drops ticks while the
// server is stopped.
func (w *watermarks) runBacklogTimeout() {
	slice := time.NewTicker(timeoutSlice)
	defer slice.Stop()
	for w.countBacklogs() {
		select {
		case <-slice.C:
		case <-w.life.ctx.Done():
			return
		}
	}
}

// countBacklogs confirms the backlogs whose timeout has expired, counts a slice of the
// others, and reports whether there are any.
func (w *watermarks) countBacklogs() (left bool) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for _, p := range w.table.records {
		switch {
		case p.backlog == 0:
		case p.backlogSlices == 0:
			p.confirm(p.backlog)
			w.note(p, 0, 0)
		default:
			p.backlogSlices--
			left = true
		}
	}
	return left
}
