package session

import "time"

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

// Defaults returns the number of default sessions.
func (r *Registry) Defaults() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.defaults)
}
