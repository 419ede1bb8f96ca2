package session

import (
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Recovered is the record of a process that a server before this one had started in the
// default session of a principal.
type Recovered struct {
	// Principal and ID identify it.
	Principal, ID string
	// Digest and Keep are those of its start.
	Digest Digest
	Keep   time.Duration
	// ClosedAt is when it has closed. Its retention began then, also if no server ran
	// since; there is at least [Config.ClosedRetention] left of it.
	ClosedAt time.Time
	// Process is the process, closed.
	Process *process.Process
}

// Recover adds a record as that of a process whose exit was not seen. OnForgotten is called
// when it is removed. It does not block. Kinds: [ProcessAlreadyExists], [Draining],
// [RetainedOutputFull].
func (r *Registry) Recover(from Recovered) (*Process, error) {
	s := r.defaultSession(from.Principal)
	p := &Process{
		Process: from.Process, id: from.ID, session: s, digest: from.Digest, keep: from.Keep, recorded: r.cfg().OnRecord != nil,
		started: make(chan struct{}), stdin: newStdin(),
		assigned: true, closed: true, reported: true, wasAtRest: true, closedAt: from.ClosedAt, restAt: from.ClosedAt,
	}
	close(p.started)
	if err := r.reserveOutput(p, p.heldBytes()); err != nil {
		return nil, err
	}
	s.lock()
	defer s.unlock()
	err := r.makeDefault(s)
	if err == nil && s.processes[p.id] != nil {
		err = &Error{Kind: ProcessAlreadyExists, Subject: p.id}
	}
	if err != nil {
		r.budget.resize(p, 0)
		return nil, err
	}
	s.processes[p.id] = p
	p.retain()
	s.changed = true
	return p, nil
}
