package gateway

import (
	"slices"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// eventDelivery sends the events of each process to the client, in order.
type eventDelivery struct {
	life  *lifetime
	table *processTable
	out   *outgoing
	marks *watermarks

	reportsLost bool // the client subscribed to notifyFailed; set before the first event is sent

	allDelivered chan struct{} // guarded by table.mu; closed when everything received is delivered; nil without a waiter
}

// deliver queues events and delivers what is pending, unless it is gated or another
// goroutine delivers.
func (d *eventDelivery) deliver(id string, events []*execwirev1.ProcessEvent) error {
	if p, ready := d.queue(id, events); ready {
		return d.deliverPending(p)
	}
	return nil
}

// queue reports whether the caller must call deliverPending.
func (d *eventDelivery) queue(id string, events []*execwirev1.ProcessEvent) (*process, bool) {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	p := d.table.record(id)
	p.add(events)
	return p, d.start(p)
}

// release opens a gate and delivers what it held back.
func (d *eventDelivery) release(g *eventGate) {
	if d.openGate(g) {
		_ = d.deliverPending(g.process) // the receiving goroutine learns of a lost connection
	}
}

// openGate opens a gate and reports whether the caller must call deliverPending.
func (d *eventDelivery) openGate(g *eventGate) bool {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	g.timer.stop()
	p := g.process
	p.gates = slices.DeleteFunc(p.gates, func(other *eventGate) bool { return other == g })
	ready := d.start(p)
	d.table.forget(p)
	return ready
}

// start reports whether the caller must call deliverPending: events are pending, not
// gated, and no goroutine delivers. If they are gated, it starts the timers. table.mu is
// held.
func (d *eventDelivery) start(p *process) bool {
	if p.delivering || len(p.pending) == 0 && !p.exitDue {
		return false
	}
	if !p.exitDue && p.isGated(p.pending[0].events[0], p.pending[0].lastGate) {
		d.startGateTimers(p)
		return false
	}
	p.delivering = true
	return true
}

// deliverPending delivers until nothing is pending or the next event is gated. Only the
// caller of a successful start calls it, so one goroutine at a time delivers the events
// of a process, in order.
func (d *eventDelivery) deliverPending(p *process) error {
	for {
		events, lateExit, more := d.next(p)
		if !more {
			return nil
		}
		var err error
		switch {
		case lateExit:
			err = d.sendLateExit(p)
		case len(events) > 0: // otherwise the client reads them
			err = d.sendEvents(p, events)
		}
		if err != nil {
			return err
		}
	}
}

// next returns the next events to send, or that the exit must be sent although the
// process has not closed. Without either, it ends the caller's delivery.
func (d *eventDelivery) next(p *process) (events []*execwirev1.ProcessEvent, lateExit, more bool) {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if p.takeLateExit() {
		return nil, true, true
	}
	if events := p.next(); len(events) > 0 {
		return d.receive(p, events), false, true
	}
	p.delivering = false
	d.signalDelivered()
	d.startGateTimers(p)
	d.table.forget(p)
	return nil, false, false
}

// startGateTimers starts the timers of the gates that hold back the next event.
// table.mu is held.
func (d *eventDelivery) startGateTimers(p *process) {
	if len(p.pending) == 0 || d.life.ctx.Err() != nil {
		return
	}
	event, upTo := p.pending[0].events[0], p.pending[0].lastGate
	for _, g := range p.gates {
		if g.limit > 0 && g.timer == nil && g.blocks(event, upTo) {
			g.timer = d.life.after(g.limit, func() { d.release(g) })
		}
	}
}

// stopTimers stops all timers, at the end of the connection.
func (d *eventDelivery) stopTimers() {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	for _, p := range d.table.records {
		p.closeWait.stop()
		for _, g := range p.gates {
			g.timer.stop()
		}
	}
}

// awaitDelivered waits until everything received is delivered, or the connection ends.
// Other goroutines deliver events that were gated.
func (d *eventDelivery) awaitDelivered() {
	delivered := make(chan struct{})
	d.table.mu.Lock()
	d.allDelivered = delivered
	d.signalDelivered()
	d.table.mu.Unlock()
	select {
	case <-delivered:
	case <-d.life.ctx.Done():
	}
}

// signalDelivered wakes awaitDelivered if nothing is pending. table.mu is held.
func (d *eventDelivery) signalDelivered() {
	if d.allDelivered == nil {
		return
	}
	for _, p := range d.table.records {
		if p.delivering || len(p.pending) > 0 {
			return
		}
	}
	close(d.allDelivered)
	d.allDelivered = nil
}

// receive records events as received and returns those to send. table.mu is held.
func (d *eventDelivery) receive(p *process, events []*execwirev1.ProcessEvent) []*execwirev1.ProcessEvent {
	missed := 0
	for _, event := range events {
		if p.receive(event) {
			missed++
		}
	}
	if _, pending := p.unacknowledged(); pending {
		d.marks.note(p, 0, 0)
	}
	d.awaitClose(p, events)
	if missed == 0 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), p.isMissed)
}

// closeTimeout is how long the exit notification of the older dialect waits for the
// streams to close. Descendants can hold the streams open indefinitely.
const closeTimeout = 2 * time.Second

// awaitClose starts the timer for the exit of a process of the older dialect. events
// are those just received. table.mu is held.
func (d *eventDelivery) awaitClose(p *process, events []*execwirev1.ProcessEvent) {
	switch {
	case events[len(events)-1].GetClosed() != nil:
		p.closeWait.stop()
		return
	case !p.mode.legacy, p.exit == 0, p.exitSent, p.closeWait != nil, d.life.ctx.Err() != nil:
		return
	}
	generation := p.generation
	p.closeWait = d.life.after(closeTimeout, func() {
		if d.exitIsDue(p, generation) {
			_ = d.deliverPending(p) // the receiving goroutine learns of a lost connection
		}
	})
}

// exitIsDue makes the exit precede the pending events, which came after it. It reports
// whether the caller must deliver.
func (d *eventDelivery) exitIsDue(p *process, generation int) bool {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	if p.generation != generation {
		return false
	}
	p.exitDue = true
	return d.start(p)
}

// sendLateExit sends the exit of a process that has not closed.
func (d *eventDelivery) sendLateExit(p *process) error {
	err := d.out.sendOne(func(dst []byte) []byte {
		dst = p.appendCommandExited(dst)
		p.gap = nil
		return dst
	})
	if err == nil {
		d.table.mu.Lock()
		defer d.table.mu.Unlock()
		p.exitDelivered = true
		d.marks.note(p, 0, 0)
	}
	return d.noteSendError(err)
}

// sendEvents sends events and records that they were sent.
func (d *eventDelivery) sendEvents(p *process, events []*execwirev1.ProcessEvent) error {
	next, bytes := 0, 0
	var failed []byte // a notification to send after the event
	err := d.out.send(func(dst []byte) ([]byte, bool) {
		if len(failed) > 0 {
			dst, failed = append(dst, failed...), nil
			return dst, true
		}
		for next < len(events) {
			event := events[next]
			next++
			if gap := event.GetGap(); gap != nil {
				p.gap = gap // owned by the delivering goroutine
				continue
			}
			bytes += len(event.GetOutput().GetData())
			if dst = p.appendEvent(dst, event); len(dst) > 0 {
				p.gap = nil
				failed = d.appendLost(nil, p, event)
				if event.GetClosed() != nil {
					d.out.setTrace(p.trace)
				}
				return dst, true
			}
		}
		return nil, false
	})
	if err == nil {
		d.noteSent(p, events, bytes)
	}
	return d.noteSendError(err)
}

// appendLost appends the failure of a process whose exit status is lost.
func (d *eventDelivery) appendLost(dst []byte, p *process, event *execwirev1.ProcessEvent) []byte {
	lost := event.GetExited().GetExit().GetCause() == execwirev1.ExitCause_EXIT_CAUSE_LOST
	if !lost || p.mode.legacy || !d.reportsLost {
		return dst
	}
	return appendFailed(dst, clientProcessID(p.id), &jsonrpc.Error{
		Code:    jsonrpc.CodeInternal,
		Message: "the process ended; its exit status is not available",
		Data:    map[string]string{"exitCause": exitCauses[execwirev1.ExitCause_EXIT_CAUSE_LOST]},
	})
}

// noteSendError ends the connection after an error in sending events, and returns the
// error.
func (d *eventDelivery) noteSendError(err error) error {
	if err != nil && d.life.ctx.Err() == nil {
		d.life.end(ending{closeInternal, "events could not be sent", err})
	}
	return err
}

// noteSent records events as sent and starts the watermark for them.
func (d *eventDelivery) noteSent(p *process, events []*execwirev1.ProcessEvent, bytes int) {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	last := events[len(events)-1]
	p.push(last.GetSeq())
	d.marks.note(p, bytes, len(events))
	if last.GetClosed() != nil {
		p.closed, p.exitDelivered = true, true
		d.marks.due.Set()
	}
}
