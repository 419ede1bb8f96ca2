package session

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/notify"
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
	keep    time.Duration // see StartOptions
	started chan struct{} // closed when the start has succeeded or failed
	stdin   *stdin
	charge  charge

	recorded  bool       // Config.OnRecord is called for it; set before the record can be found
	recording sync.Mutex // held by calls of OnRecord and OnForgotten

	// Guarded by session.mu.
	replaces    *Process // while it is being started; not found until that has failed
	owner       currentOwner
	lastStream  *Ownership  // the latest; nil: no stream has owned it
	assigned    bool        // it was started and assignOwner or own was called
	terminating bool        // because its owner did not return
	closed      bool        // the log is closed and afterClosed was called
	reported    bool        // Config.OnClosed was called
	wasAtRest   bool        // the registry has counted it as at rest
	forgotten   bool        // its record was removed, but not because the registry closes
	seen        bool        // the session's principal has received its exit record
	closedAt    time.Time   // when closed was set
	restAt      time.Time   // when it last came to rest
	expiry      *time.Timer // removes the record
	expires     time.Time   // when it does
}

// ID returns the id of the process in its session.
func (p *Process) ID() string { return p.id }

// Digest returns the digest of its start.
func (p *Process) Digest() Digest { return p.digest }

// Keep returns the time to keep its record that the start asked for; 0: none.
func (p *Process) Keep() time.Duration { return p.keep }

// SessionID returns the id of its session.
func (p *Process) SessionID() string { return p.session.id }

// ClosedAt returns when it was noticed that the process has closed; zero: it was not. OnRecord
// is called after that.
func (p *Process) ClosedAt() time.Time {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	return p.closedAt
}

// Principal returns the name of the principal that owns its session.
func (p *Process) Principal() string { return p.session.principal }

// hasStarted reports whether the process was started successfully.
func (p *Process) hasStarted() bool {
	return notify.IsClosed(p.started) && p.Process != nil
}

// afterClosed is called when the log is closed, and starts the retention of the record.
func (p *Process) afterClosed() {
	defer p.session.registry.goroutines.Done()
	p.markClosed()
	p.record()
	if closed := p.session.registry.cfg().OnClosed; closed != nil {
		closed(p)
	}
	p.session.mu.Lock()
	p.reported = true
	p.session.mu.Unlock()
}

// record calls Config.OnRecord if it is called for the process, and OnForgotten if its record
// was removed meanwhile. No lock is held.
func (p *Process) record() {
	cfg := p.session.registry.cfg()
	if !p.recorded || cfg.OnRecord == nil {
		return
	}
	p.recording.Lock()
	defer p.recording.Unlock()
	cfg.OnRecord(p)
	p.session.mu.Lock()
	forgotten := p.forgotten
	p.session.mu.Unlock()
	if forgotten {
		cfg.OnForgotten(p)
	}
}

// reportForgotten calls Config.OnForgotten. No lock is held.
func (p *Process) reportForgotten() {
	p.recording.Lock()
	defer p.recording.Unlock()
	if forgotten := p.session.registry.cfg().OnForgotten; forgotten != nil {
		forgotten(p)
	}
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
	p.closed, p.closedAt = true, time.Now()
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
