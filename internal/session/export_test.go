package session

import (
	"time"
)

// Drained blocks until the registry has noticed and reported that the process has closed.
func (r *Registry) Drained(p *Process) {
	for {
		p.session.mu.Lock()
		closed := p.reported
		p.session.mu.Unlock()
		if closed {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// BeginReplace begins a start that replaces the process, and returns what makes it fail.
func (p *Process) BeginReplace() (fail func()) {
	s := p.session
	claim, created, err := (&startRequest{id: p.id, digest: Digest{255}, options: StartOptions{Replace: true}}).claim(s)
	if !created {
		panic(err)
	}
	return func() {
		s.lock()
		defer s.unlock()
		s.failStart(claim)
	}
}

// Expire removes the record of the process as at the end of its retention.
func (p *Process) Expire() { p.removeIfAtRest() }

// Defaults returns the number of default sessions.
func (r *Registry) Defaults() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.defaults)
}
