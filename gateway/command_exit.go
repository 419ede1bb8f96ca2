package gateway

import (
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// closePatience is how long after the exit of a process its close may come before
// clients of the older dialect are told of the exit without it: descendants can
// hold its streams for as long as they like.
const closePatience = 2 * time.Second

// awaitClose has the exit of a process of the older dialect said in time. events
// are those that were received last. mu is held.
func (c *connection) awaitClose(p *process, events []*execwirev1.ProcessEvent) {
	switch {
	case events[len(events)-1].GetClosed() != nil:
		c.stopCloseWait(p)
		return
	case !p.manner.older, p.exit == 0, p.exitSaid, p.closeWait != nil, c.ctx.Err() != nil:
		return
	}
	generation := p.generation
	c.tasks.Add(1)
	p.closeWait = time.AfterFunc(closePatience, func() { c.closeIsLate(p, generation) })
}

// closeIsLate is for a process that has not closed in time.
func (c *connection) closeIsLate(p *process, generation int) {
	defer c.tasks.Done()
	defer c.contain()
	if c.exitIsDue(p, generation) {
		_ = c.sayPending(p) // that the connection is lost is learned elsewhere
	}
}

// exitIsDue has the exit said before what is pending, which came after it. It
// reports whether the caller has to say it.
func (c *connection) exitIsDue(p *process, generation int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.generation != generation {
		return false
	}
	p.exitDue = true
	return c.maySay(p)
}

// takeLateExit reports whether the exit is to be said now. mu is held, by who
// speaks of the process.
func (p *process) takeLateExit() bool {
	due := p.exitDue && !p.exitSaid
	p.exitDue = false
	return due
}

// sayLateExit says that a process has exited that has not closed.
func (c *connection) sayLateExit(p *process) error {
	said := false
	err := c.out.say(func(dst []byte) ([]byte, bool) {
		if said {
			return nil, false
		}
		said = true
		dst = p.appendCommandExited(dst)
		p.gap = nil
		return dst, true
	})
	if err == nil {
		c.noteExitTold(p)
	}
	return c.noteUnsaid(err)
}

// noteExitTold has it proven that the client has the exit.
func (c *connection) noteExitTold(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.exitTold = true
	c.marks.note(p, 0, 0)
}

// stopCloseWait stops the timer of a process. mu is held.
func (c *connection) stopCloseWait(p *process) {
	if p.closeWait != nil && p.closeWait.Stop() {
		c.tasks.Done()
	}
}
