package gateway

import (
	"slices"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// process is what a connection knows of one process: requests that are under
// way, events that wait, and how far the client is. All of it is guarded by
// connection.mu, except that id and name never change.
type process struct {
	id   string // of the core
	name []byte // of the client, as JSON

	users    int             // requests that name it
	starting <-chan struct{} // closed when the last start that came was carried out
	writing  <-chan struct{} // closed when the last write that came was carried out

	holds   []*hold
	pending []*execwirev1.ProcessEvent // received and held back
	saying  bool                       // somebody says what was held back
	limit   *time.Timer                // ends holds that have a limit

	gap     *execwirev1.OutputGap // to be told with the next event
	renewed bool                  // another process was started under the id; its events are to come
	closed  bool                  // its closed event was said
	exit    uint64                // the seq of its exited event, 0 while not known

	progress
}

// record finds the process with the core's id, or makes its record. mu is held.
func (c *connection) record(id string) *process {
	p := c.records[id]
	if p == nil {
		p = &process{id: id, name: jsonrpc.AppendString(nil, clientProcessID(id))}
		c.records[id] = p
	}
	return p
}

// forget drops a record that says nothing: nothing is under way, and the client
// has nothing yet or everything. mu is held.
func (c *connection) forget(p *process) {
	idle := p.users == 0 && len(p.holds) == 0 && len(p.pending) == 0 && !p.saying
	if idle && p.isSettled() && c.records[p.id] == p {
		delete(c.records, p.id)
	}
}

// isSettled reports whether there is nothing to be remembered of how far the
// client is.
func (p *process) isSettled() bool {
	return p.missed <= p.received && p.hole == 0 && (p.received == 0 || p.closed && p.acknowledged == p.received)
}

// Limits of how long events are held back for an answer.
const (
	// holdForWrite bounds by how much a write that waits for room delays output.
	holdForWrite = 100 * time.Millisecond
	// holdForEnd bounds by how much a slow termination delays the news of the exit.
	holdForEnd = 2 * time.Second
)

// hold keeps events of a process back until the request that causes them is
// answered.
type hold struct {
	process *process
	endOnly bool          // output passes
	limit   time.Duration // 0 is none
}

// hold begins a hold that ends after the request was answered. It is called
// before anything that can cause events.
func (r *request) hold(id string, endOnly bool, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record(id)
	h := &hold{process: p, endOnly: endOnly, limit: limit}
	p.holds = append(p.holds, h)
	r.holds = append(r.holds, h)
}

// release ends the holds of a request and says what they held back.
func (r *request) release() {
	for _, h := range r.holds {
		r.mu.Lock()
		h.process.drop(h)
		r.unlimit(h.process) // those that are left get their time anew
		ready := r.maySay(h.process)
		r.forget(h.process)
		r.mu.Unlock()
		if ready {
			r.sayPending(h.process)
		}
	}
}

func (p *process) drop(h *hold) {
	p.holds = slices.DeleteFunc(p.holds, func(other *hold) bool { return other == h })
}

// isHeld reports whether an event is held back.
func (p *process) isHeld(event *execwirev1.ProcessEvent) bool {
	isEnd := event.GetExited() != nil || event.GetClosed() != nil
	return slices.ContainsFunc(p.holds, func(h *hold) bool { return !h.endOnly || isEnd })
}

// maySay reports whether something was held back and nothing holds it any more,
// and nobody is saying it yet; the caller then has to. Otherwise it sees to it
// that a hold with a limit ends. mu is held.
func (c *connection) maySay(p *process) bool {
	if p.saying || len(p.pending) == 0 {
		return false
	}
	if p.isHeld(p.pending[0]) {
		c.limitHolds(p)
		return false
	}
	p.saying = true
	return true
}

// sayPending says what was held back until nothing is left or the next is held.
func (c *connection) sayPending(p *process) {
	for {
		c.mu.Lock()
		ready := 0
		for ready < len(p.pending) && !p.isHeld(p.pending[ready]) {
			ready++
		}
		if ready == 0 {
			p.saying = false
			if len(p.pending) > 0 {
				c.limitHolds(p)
			}
			c.forget(p)
			c.mu.Unlock()
			return
		}
		events := c.receiveEvents(p, p.pending[:ready])
		if p.pending = p.pending[ready:]; len(p.pending) == 0 {
			p.pending = nil
		}
		c.mu.Unlock()
		if len(events) > 0 && c.say(p, events) != nil {
			return // the connection is lost
		}
	}
}

// limitHolds ends the holds with the shortest limit when that is over. mu is
// held.
func (c *connection) limitHolds(p *process) {
	var shortest time.Duration
	for _, h := range p.holds {
		if h.limit > 0 && (shortest == 0 || h.limit < shortest) {
			shortest = h.limit
		}
	}
	if p.limit != nil || shortest == 0 || c.ctx.Err() != nil {
		return
	}
	c.tasks.Add(1)
	p.limit = time.AfterFunc(shortest, func() {
		defer c.tasks.Done()
		c.endHolds(p, shortest)
	})
}

// endHolds ends the holds whose limit is over.
func (c *connection) endHolds(p *process, limit time.Duration) {
	c.mu.Lock()
	p.limit = nil
	p.holds = slices.DeleteFunc(p.holds, func(h *hold) bool { return h.limit > 0 && h.limit <= limit })
	ready := c.maySay(p)
	c.mu.Unlock()
	if ready {
		c.sayPending(p)
	}
}

// unlimit stops the timer of holds. mu is held.
func (c *connection) unlimit(p *process) {
	if p.limit != nil && p.limit.Stop() {
		p.limit = nil
		c.tasks.Done()
	}
}

// unlimitAll is for the end of the connection.
func (c *connection) unlimitAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.records {
		c.unlimit(p)
	}
}
