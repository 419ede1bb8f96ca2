package gateway

import (
	"slices"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Limits of how long events are held back for an answer.
const (
	// holdForOutput bounds by how much a write that waits for room, or a slow
	// signal, delays output.
	holdForOutput = 100 * time.Millisecond
	// holdForEnd bounds by how much a slow termination delays the news of the exit.
	holdForEnd = 2 * time.Second
)

// holdLimits are those of a gateway: holdForOutput and holdForEnd.
type holdLimits struct{ output, end time.Duration }

// hold keeps events of a process back until the request that causes them is
// answered.
type hold struct {
	process *process
	number  uint64        // from 1, by when they began
	endOnly bool          // output passes
	limit   time.Duration // 0 is none; guarded by connection.mu
	timer   *time.Timer   // runs for the limit; guarded by connection.mu
}

// batch is what the core said at once of a process.
type batch struct {
	events []*execwirev1.ProcessEvent
	// upTo is the last hold that had begun then. Requests of later ones did not
	// cause the events: a client that writes without a pause is told of the echo.
	upTo uint64
}

// hold begins a hold that ends after the request was answered. It is called
// before anything that can cause events.
func (r *request) hold(id string, endOnly bool, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record(id)
	p.begun++
	h := &hold{process: p, number: p.begun, endOnly: endOnly, limit: limit}
	p.holds = append(p.holds, h)
	r.holds = append(r.holds, h)
}

// holdForSignal is hold for what may have the process speak, and end.
func (r *request) holdForSignal(id string) {
	r.hold(id, false, r.gateway.holds.output)
	r.hold(id, true, r.gateway.holds.end)
}

// unlimitHolds has the holds of a request last until it was answered: nothing but
// saying the answer is left to be waited for.
func (r *request) unlimitHolds() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.holds {
		r.unlimit(h)
		h.limit = 0
	}
}

// release ends the holds of a request and says what they held back.
func (r *request) release() {
	for _, h := range r.holds {
		if r.endHold(h) {
			_ = r.sayPending(h.process) // that the connection is lost is learned elsewhere
		}
	}
}

// endHold ends a hold and reports whether the caller has to say what it held
// back.
func (c *connection) endHold(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlimit(h)
	p := h.process
	p.holds = slices.DeleteFunc(p.holds, func(other *hold) bool { return other == h })
	ready := c.maySay(p)
	c.forget(p)
	return ready
}

// holds reports whether the hold holds an event back.
func (h *hold) holds(event *execwirev1.ProcessEvent, upTo uint64) bool {
	isEnd := event.GetExited() != nil || event.GetClosed() != nil
	return h.number <= upTo && (!h.endOnly || isEnd)
}

// isHeld reports whether an event is held back.
func (p *process) isHeld(event *execwirev1.ProcessEvent, upTo uint64) bool {
	return slices.ContainsFunc(p.holds, func(h *hold) bool { return h.holds(event, upTo) })
}

// add adds what the core said. connection.mu is held.
func (p *process) add(events []*execwirev1.ProcessEvent) {
	if len(events) > 0 {
		p.pending = append(p.pending, batch{events: events, upTo: p.begun})
	}
}

// next takes what is to be said next, nothing if that is held back or nothing is
// pending. connection.mu is held.
func (p *process) next() []*execwirev1.ProcessEvent {
	if len(p.pending) == 0 {
		return nil
	}
	first := &p.pending[0]
	ready := 0
	for ready < len(first.events) && !p.isHeld(first.events[ready], first.upTo) {
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

// maySay reports whether something is to be said and nobody is saying it yet;
// the caller then has to. What is held back is so for a bounded time. mu is held.
func (c *connection) maySay(p *process) bool {
	if p.saying || len(p.pending) == 0 && !p.exitDue {
		return false
	}
	if !p.exitDue && p.isHeld(p.pending[0].events[0], p.pending[0].upTo) {
		c.limitHolds(p)
		return false
	}
	p.saying = true
	return true
}

// sayPending says what is pending until nothing is left or the next is held
// back. Whoever calls it was told to by maySay: events of a process are said by
// one goroutine at a time, in their order.
func (c *connection) sayPending(p *process) error {
	for {
		next, more := c.nextToSay(p)
		if !more {
			return nil
		}
		var err error
		switch {
		case next.lateExit:
			err = c.sayLateExit(p)
		case len(next.events) > 0: // else the client gets them by reading
			err = c.say(p, next.events)
		}
		if err != nil {
			return err
		}
	}
}

// news is what the client is to be told of a process.
type news struct {
	events   []*execwirev1.ProcessEvent
	lateExit bool // instead of events: it has exited, and has not closed in time
}

// nextToSay returns what the client is to be told next. If there is no more the
// caller says nothing of the process any more.
func (c *connection) nextToSay(p *process) (next news, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.takeLateExit() {
		return news{lateExit: true}, true
	}
	if events := p.next(); len(events) > 0 {
		return news{events: c.receiveEvents(p, events)}, true
	}
	p.saying = false
	c.noteAllSaid()
	c.limitHolds(p)
	c.forget(p)
	return news{}, false
}

// limitHolds has the holds end in time that hold back what is to be said next.
// mu is held.
func (c *connection) limitHolds(p *process) {
	if len(p.pending) == 0 || c.ctx.Err() != nil {
		return
	}
	event, upTo := p.pending[0].events[0], p.pending[0].upTo
	for _, h := range p.holds {
		if h.limit > 0 && h.timer == nil && h.holds(event, upTo) {
			c.tasks.Add(1)
			h.timer = time.AfterFunc(h.limit, func() { c.endLateHold(h) })
		}
	}
}

// endLateHold is for a hold whose time is over.
func (c *connection) endLateHold(h *hold) {
	defer c.tasks.Done()
	defer c.contain()
	if c.endHold(h) {
		_ = c.sayPending(h.process)
	}
}

// unlimit stops the timer of a hold. mu is held.
func (c *connection) unlimit(h *hold) {
	if h.timer != nil && h.timer.Stop() {
		c.tasks.Done()
	}
}

// unlimitAll is for the end of the connection.
func (c *connection) unlimitAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.records {
		c.stopCloseWait(p)
		for _, h := range p.holds {
			c.unlimit(h)
		}
	}
}
