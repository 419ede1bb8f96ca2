package session

import (
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Process is a process with its id in a session. All methods may be called
// concurrently.
type Process struct {
	// Process is the running process. It is set before the record can be found.
	*process.Process

	id      string
	session *Session
	digest  Digest
	started chan struct{} // closed when the start has succeeded or failed
	stdin   *stdin
	charge  charge

	// Guarded by session.mu.
	owner       currentOwner
	lastStream  *Ownership  // the latest; nil: no stream has owned it
	assigned    bool        // it was started and assignOwner or own was called
	terminating bool        // because its owner did not return
	closed      bool        // the log is closed and watchClosed has noticed
	reported    bool        // Config.OnClosed was called
	wasAtRest   bool        // the registry has counted it as at rest
	seen        bool        // the session's principal has received its exit record
	restAt      time.Time   // when it last came to rest
	expiry      *time.Timer // removes the record
	expires     time.Time   // when it does
}

// ID returns the id of the process in its session.
func (p *Process) ID() string { return p.id }

// SessionID returns the id of its session.
func (p *Process) SessionID() string { return p.session.id }

// Principal returns the name of the principal that owns its session.
func (p *Process) Principal() string { return p.session.principal }

// hasStarted reports whether the process was started successfully.
func (p *Process) hasStarted() bool {
	select {
	case <-p.started:
		return p.Process != nil
	default:
		return false
	}
}

// watchClosed waits until the log is closed and starts the retention of the record.
func (p *Process) watchClosed() {
	defer p.session.registry.goroutines.Done()
	<-p.Closed()
	p.markClosed()
	if closed := p.session.registry.cfg().OnClosed; closed != nil {
		closed(p)
	}
	p.session.mu.Lock()
	p.reported = true
	p.session.mu.Unlock()
}

// heldBytes is what a closed process is charged.
func (p *Process) heldBytes() int64 {
	spec := p.Spec()
	return int64(p.Log().Stats().HeldBytes+p.ScreenBytes()) + recordBytes(&spec) + p.stdin.remembered.Load()
}

// markClosed starts the retention of a process whose log is closed, once.
func (p *Process) markClosed() {
	s := p.session
	held := p.heldBytes()
	s.lock()
	defer s.unlock()
	if p.closed {
		return
	}
	p.closed = true
	s.running--
	s.registry.countClosed()
	if s.processes[p.id] == p {
		s.registry.budget.resize(p, held)
	}
	p.settle()
}

// progress describes the process for an error message. session.mu is held.
func (p *Process) progress() string {
	switch {
	case !p.Log().Stats().Closed:
		return "it runs"
	case p.owner.state != unowned:
		return "it has ended, and its owner has not acknowledged that"
	}
	return "it has ended"
}
