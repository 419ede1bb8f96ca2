package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Digest identifies the content of a start request. It tells a repeated request from
// a different one for the same id.
type Digest [32]byte

// Session holds the processes of one principal by id, and its other resources. All
// methods may be called concurrently.
type Session struct {
	id        string
	principal string
	registry  *Registry
	created   time.Time
	lease     *lease            // nil: the default session
	grants    map[string]Access // guarded by registry.mu; access of other principals
	ended     chan struct{}     // closed when the session is over and nothing is left of it

	mu        sync.Mutex
	processes map[string]*Process // guarded by mu; includes those being started
	running   int                 // guarded by mu; processes that have not closed
	over      bool                // guarded by mu; nothing is started any more
	closing   bool                // guarded by mu; over because the registry closes
	reading   bool                // guarded by mu; over, but an attachment still reads
	changed   bool                // guarded by mu; unlock calls Config.OnChange
	forgotten []*Process          // guarded by mu; for which unlock calls Config.OnForgotten

	resources map[*resourceKey]*resource // guarded by mu; nil: none yet

	// Of leased sessions, guarded by mu.
	whenDetached WhenDetached
	maxProcesses int   // 0: no limit
	feed         *feed // of the attachment; nil: detached
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Principal returns the name of the principal that owns the session.
func (s *Session) Principal() string { return s.principal }

// lock locks mu. unlock also reports a change and what was removed, after it has unlocked
// mu.
func (s *Session) lock() { s.mu.Lock() }

func (s *Session) unlock() {
	changed, forgotten := s.changed, s.forgotten
	s.changed, s.forgotten = false, nil
	s.mu.Unlock()
	for _, p := range forgotten {
		p.reportForgotten()
	}
	if changed {
		s.registry.cfg().OnChange()
	}
}

// Start starts a process under an id, or returns the process that a start with the
// same id and digest created before; created tells which. A different start for an
// existing id is kind [ProcessAlreadyExists]. A failed start leaves the id unused.
// Start blocks while the process is spawned, also by another call. Other kinds:
// [Draining], [SessionClosed], [TooManyProcesses], [RetainedOutputFull], [KeepTooLong],
// [KeepInLease].
func (s *Session) Start(ctx context.Context, id string, digest Digest, spec process.Spec, options StartOptions) (p *Process, created bool, err error) {
	p, _, created, err = (&startRequest{id, digest, spec, options, nil}).startIn(ctx, s)
	return p, created, err
}

// StartOwned is Start and Own in one: no output is evicted before the ownership
// begins. If an earlier equal start created the process, it takes the ownership from
// the first event. If ctx has ended by the time the process is started, the process
// is kept for the grace, as after [Ownership.Lost].
func (s *Session) StartOwned(ctx context.Context, id string, digest Digest, spec process.Spec, options StartOptions, grace *time.Duration) (o *Ownership, created bool, err error) {
	wait, err := s.registry.resolveGrace(id, grace)
	if err != nil {
		return nil, false, err
	}
	p, o, created, err := (&startRequest{id, digest, spec, options, &wait}).startIn(ctx, s)
	if err == nil && o == nil {
		o, err = p.Own(ctx, 0, grace)
	}
	return o, created, err
}

// overError returns an error if the session is over: *superseded for a default
// session, which the principal's next one follows. s.mu is held.
func (s *Session) overError() error {
	switch {
	case !s.over:
		return nil
	case s.lease == nil:
		return &superseded{by: s.registry.defaultSession(s.principal)}
	}
	return &Error{Kind: SessionClosed, Subject: s.id}
}

// startError returns why no process can be started, or nil. *superseded means that
// another session has to start it. s.mu is held.
func (s *Session) startError() error {
	if err := s.overError(); err != nil {
		return err
	}
	if most := s.registry.cfg().ProcessesPerSession; s.isFull(most) {
		return &Error{Kind: TooManyProcesses, Subject: s.id, Limit: int64(most)}
	}
	if most := s.maxProcesses; s.isFull(most) {
		return &Error{Kind: TooManyProcessesAttached, Subject: s.id, Limit: int64(most)}
	}
	return s.registry.startError(s)
}

// isFull reports whether the limit of running processes is reached; 0 is no limit. A
// process whose log is closed does not count, even if afterClosed was not called yet.
// s.mu is held.
func (s *Session) isFull(most int) bool {
	if most == 0 || s.running < most {
		return false
	}
	running := s.running
	for _, p := range s.processes {
		if p.assigned && !p.closed && p.Log().Stats().Closed {
			running--
		}
	}
	return running >= most
}

// failStart ends a start without a process. s.mu is held.
func (s *Session) failStart(p *Process) {
	p.remove()
	s.running--
	s.registry.countClosed()
	s.registry.countAtRest()
	s.registry.goroutines.Done()
	close(p.started)
}

// Process returns the process with the id. It never blocks: a process that is still
// starting does not exist yet.
func (s *Session) Process(id string) (*Process, error) {
	s.mu.Lock()
	p := s.processes[id]
	s.mu.Unlock()
	if p == nil || !p.hasStarted() {
		return nil, &Error{Kind: ProcessNotFound, Subject: id}
	}
	return p, nil
}

// Processes returns up to limit processes with ids above after, ordered by id, and
// whether there are more.
func (s *Session) Processes(after string, limit int) (list []*Process, more bool) {
	s.mu.Lock()
	for id, p := range s.processes {
		if id > after && p.hasStarted() {
			list = append(list, p)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *Process) int { return strings.Compare(a.id, b.id) })
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}

// noteClosed notes that the process with the id has closed, if it has: afterClosed may not
// have been called yet. It does not block.
func (s *Session) noteClosed(id string) {
	if p, err := s.Process(id); err == nil && p.Log().Stats().Closed {
		p.markClosed()
	}
}

// forgetAll removes all records and stops their timers.
func (s *Session) forgetAll() {
	s.lock()
	defer s.unlock()
	for len(s.processes) > 0 { // removing one that is being started brings back what it replaces
		for _, p := range s.processes {
			p.remove()
		}
	}
}
