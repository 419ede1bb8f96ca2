package session

import (
	"container/list"
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
	charge  charge

	// Guarded by session.mu.
	owner   ownerState
	backlog *backlog      // what was spooled; nil: nothing ever was
	kept    bool          // it was started, and has an owner or a keeper
	closed  bool          // the log has ended, and its watcher knows
	rested  bool          // it was at rest, and the registry knows
	seen    bool          // the session's principal was given its exit
	restAt  time.Time     // when it was last at rest
	unseen  *list.Element // in session.unseen
	expiry  *time.Timer   // removes the record
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
	defer p.session.registry.goroutines.Done()
	<-p.Closed()
	p.noteClosed()
}

// noteClosed begins the retention of a process whose log has ended, once.
func (p *Process) noteClosed() {
	s := p.session
	spec := p.Spec()
	held := int64(p.Log().Stats().HeldBytes) + described(&spec) + p.stdin.remembered.Load()
	s.lock()
	defer s.unlock()
	if p.closed {
		return
	}
	p.closed = true
	s.running--
	s.registry.processClosed()
	if s.processes[p.id] == p {
		s.registry.budget.resize(p, held)
	}
	s.settle(p)
}

// progress says for people where a process is. session.mu is held.
func (p *Process) progress() string {
	switch {
	case !p.Log().Stats().Closed:
		return "it runs"
	case p.owner.situation != free:
		return "it has ended, and its owner has not acknowledged that"
	}
	return "it has ended"
}

// rests reports whether the process has closed and is nobody's. session.mu is
// held.
func (p *Process) rests() bool { return p.closed && p.owner.situation == free }
