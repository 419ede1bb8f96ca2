package session

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Process is a process under its id in a session. The embedded process is what
// runs; the rest is who it belongs to. All methods may be called concurrently.
type Process struct {
	// Process is what runs. It is set before anybody can get hold of the
	// record.
	*process.Process

	id      string
	session *Session
	digest  Digest
	started chan struct{} // closed when the start has succeeded or failed
	stdin   *stdin
	expiry  *time.Timer // guarded by session.mu; removes the record

	mu     sync.Mutex
	owner  ownerState // guarded by mu
	closed bool       // guarded by mu; the log has ended, and its watcher knows
	rested bool       // guarded by mu; it was at rest, and the registry knows
}

// ID returns the id of the process in its session.
func (p *Process) ID() string { return p.id }

// SessionID returns the id of the session.
func (p *Process) SessionID() string { return p.session.id }

// hasStarted reports whether the process was started with success.
func (p *Process) hasStarted() bool {
	select {
	case <-p.started:
		return p.Process != nil
	default:
		return false
	}
}

// watchClosed waits for the end of the process's log and begins the retention
// of its record.
func (p *Process) watchClosed() {
	<-p.Closed()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.retain()
}

// retain begins the retention of the record anew if the process has closed and
// nobody owns it or may come back to it. Whoever ends an ownership calls it.
func (p *Process) retain() {
	p.mu.Lock()
	rests := p.rests()
	news := rests && !p.rested
	p.rested = p.rested || rests
	p.mu.Unlock()
	if news {
		p.session.registry.end()
	}
	if rests {
		p.session.expire(p, p.session.registry.cfg.ClosedRetention)
		p.session.registry.cfg.OnChange()
	}
}

// isAtRest reports whether the process has closed and is nobody's.
func (p *Process) isAtRest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rests()
}

// rests is isAtRest with mu held.
func (p *Process) rests() bool { return p.closed && p.owner == ownerState{} }
