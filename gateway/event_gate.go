package gateway

import (
	"slices"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Limits of how long events wait for an answer.
const (
	// gateOutputLimit bounds how long a blocked write or a slow signal delays output.
	gateOutputLimit = 100 * time.Millisecond
	// gateEndLimit bounds how long a slow termination delays the exit.
	gateEndLimit = 2 * time.Second
)

// gateLimits are gateOutputLimit and gateEndLimit; tests shorten them.
type gateLimits struct{ output, end time.Duration }

// eventGate holds back events of a process until the request that causes them is
// answered: a response precedes the notifications that it causes.
type eventGate struct {
	process *process
	number  uint64        // position in the order of creation, from 1
	endOnly bool          // hold back only exited and closed events
	limit   time.Duration // 0 is none; guarded by processTable.mu
	timer   *delayed      // guarded by processTable.mu
}

// batch is what the server sent at once of a process.
type batch struct {
	events []*execwirev1.ProcessEvent
	// lastGate is the number of the last gate when the batch arrived. Later gates do
	// not hold it back, so a client that writes without pause still gets output.
	lastGate uint64
}

// gateEvents creates a gate that opens after the request is answered. It is called
// before anything that can cause events.
func (r *request) gateEvents(id string, endOnly bool, limit time.Duration) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	p := r.table.record(id)
	p.gatesCreated++
	g := &eventGate{process: p, number: p.gatesCreated, endOnly: endOnly, limit: limit}
	p.gates = append(p.gates, g)
	r.gates = append(r.gates, g)
}

// gateForSignal gates output and exit for a request that can cause both.
func (r *request) gateForSignal(id string) {
	r.gateEvents(id, false, r.gateway.gateLimits.output)
	r.gateEvents(id, true, r.gateway.gateLimits.end)
}

// unlimitGates removes the time limits of the request's gates: only sending the answer
// is left.
func (r *request) unlimitGates() {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	for _, g := range r.gates {
		g.timer.stop()
		g.limit = 0
	}
}

// openGates opens the gates of the request.
func (r *request) openGates() {
	for _, g := range r.gates {
		r.table.release(g)
	}
}

// release opens a gate and delivers what it held back.
func (t *processTable) release(g *eventGate) {
	if t.openGate(g) {
		_ = t.deliverPending(g.process) // the receiving goroutine learns of a lost connection
	}
}

// openGate opens a gate and reports whether the caller must call deliverPending.
func (t *processTable) openGate(g *eventGate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.timer.stop()
	p := g.process
	p.gates = slices.DeleteFunc(p.gates, func(other *eventGate) bool { return other == g })
	ready := t.startDelivery(p)
	t.forget(p)
	return ready
}

// blocks reports whether the gate holds back an event of a batch with this lastGate.
func (g *eventGate) blocks(event *execwirev1.ProcessEvent, upTo uint64) bool {
	isEnd := event.GetExited() != nil || event.GetClosed() != nil
	return g.number <= upTo && (!g.endOnly || isEnd)
}

func (p *process) isGated(event *execwirev1.ProcessEvent, upTo uint64) bool {
	return slices.ContainsFunc(p.gates, func(g *eventGate) bool { return g.blocks(event, upTo) })
}

// add queues events. processTable.mu is held.
func (p *process) add(events []*execwirev1.ProcessEvent) {
	if len(events) > 0 {
		p.pending = append(p.pending, batch{events: events, lastGate: p.gatesCreated})
	}
}

// next removes the next events that are not gated. processTable.mu is held.
func (p *process) next() []*execwirev1.ProcessEvent {
	if len(p.pending) == 0 {
		return nil
	}
	first := &p.pending[0]
	ready := 0
	for ready < len(first.events) && !p.isGated(first.events[ready], first.lastGate) {
		ready++
	}
	events := first.events[:ready:ready]
	if first.events = first.events[ready:]; len(first.events) > 0 {
		return events
	}
	*first = batch{}
	if p.pending = p.pending[1:]; len(p.pending) == 0 {
		p.pending = nil
	}
	return events
}

// startDelivery reports whether the caller must call deliverPending: events are
// pending, not gated, and no goroutine delivers. If they are gated, it starts the
// timers. mu is held.
func (t *processTable) startDelivery(p *process) bool {
	if p.delivering || len(p.pending) == 0 && !p.exitDue {
		return false
	}
	if !p.exitDue && p.isGated(p.pending[0].events[0], p.pending[0].lastGate) {
		t.startGateTimers(p)
		return false
	}
	p.delivering = true
	return true
}

// deliverPending delivers until nothing is pending or the next event is gated. Only the
// caller of a successful startDelivery calls it, so one goroutine at a time delivers
// the events of a process, in order.
func (t *processTable) deliverPending(p *process) error {
	for {
		events, lateExit, more := t.nextDelivery(p)
		if !more {
			return nil
		}
		var err error
		switch {
		case lateExit:
			err = t.sendLateExit(p)
		case len(events) > 0: // otherwise the client reads them
			err = t.sendEvents(p, events)
		}
		if err != nil {
			return err
		}
	}
}

// nextDelivery returns the next events to send, or that the exit must be sent although
// the process has not closed. Without either, it ends the caller's delivery.
func (t *processTable) nextDelivery(p *process) (events []*execwirev1.ProcessEvent, lateExit, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.takeLateExit() {
		return nil, true, true
	}
	if events := p.next(); len(events) > 0 {
		return t.receiveEvents(p, events), false, true
	}
	p.delivering = false
	t.signalDelivered()
	t.startGateTimers(p)
	t.forget(p)
	return nil, false, false
}

// startGateTimers starts the timers of the gates that hold back the next event. mu is
// held.
func (t *processTable) startGateTimers(p *process) {
	if len(p.pending) == 0 || t.conn.ctx.Err() != nil {
		return
	}
	event, upTo := p.pending[0].events[0], p.pending[0].lastGate
	for _, g := range p.gates {
		if g.limit > 0 && g.timer == nil && g.blocks(event, upTo) {
			g.timer = t.conn.after(g.limit, func() { t.release(g) })
		}
	}
}

// stopTimers stops the timers of all gates, at the end of the connection.
func (t *processTable) stopTimers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.records {
		p.closeWait.stop()
		for _, g := range p.gates {
			g.timer.stop()
		}
	}
}
