package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Digest identifies the content of a start request, so that a repeated one can
// be told from a different one for the same id.
type Digest [32]byte

// Session holds the processes of one principal by their ids. All methods may
// be called concurrently.
type Session struct {
	id        string
	principal string
	registry  *Registry

	// Of leased sessions; the default session has none of it.
	lease   *lease
	created time.Time
	grants  map[string]Access // guarded by registry.mu; what other principals may

	mu           sync.Mutex
	processes    map[string]*Process // guarded by mu; includes those being started
	whenDetached WhenDetached        // guarded by mu
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Start starts a process under an id, or returns the one that an equal start
// (by digest) made before; created tells the two apart. A different start for
// a taken id is kind [ProcessAlreadyExists]. A start that fails leaves the id
// free. It blocks while the process is being spawned, also by another caller.
func (s *Session) Start(ctx context.Context, id string, digest Digest, spec process.Spec) (p *Process, created bool, err error) {
	for {
		p, created, err := s.claim(id, digest)
		if err != nil {
			return nil, false, err
		}
		if created {
			return p, true, s.spawn(ctx, p, spec)
		}
		select {
		case <-p.started:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		if p.Process != nil {
			return p, false, nil
		}
		// The other start failed and gave the id back: this one tries itself,
		// so that its caller gets an answer of its own.
	}
}

// StartOwned is Start and Own in one, for a caller that owns what it starts:
// nothing that the process says is lost before the ownership begins. Of a
// process that an equal start made before it takes the ownership, from the
// beginning. If the ownership cannot be taken of a process that was started, the
// process is kept for the grace as if its owner had been lost.
func (s *Session) StartOwned(ctx context.Context, id string, digest Digest, spec process.Spec, grace *time.Duration) (o *Ownership, created bool, err error) {
	if _, err := s.registry.resolveGrace(id, grace); err != nil {
		return nil, false, err
	}
	p, created, err := s.Start(ctx, id, digest, spec)
	if err != nil {
		return nil, false, err
	}
	o, err = p.Own(ctx, 0, grace)
	return o, created, err
}

// claim finds the process with the id or reserves the id for a new one.
func (s *Session) claim(id string, digest Digest) (p *Process, created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[id]; p != nil {
		if p.digest != digest {
			return nil, false, &Error{Kind: ProcessAlreadyExists, Subject: id}
		}
		return p, false, nil
	}
	if err := s.registry.begin(); err != nil {
		return nil, false, err
	}
	p = &Process{id: id, session: s, digest: digest, started: make(chan struct{}), stdin: newStdin()}
	s.processes[id] = p
	return p, true, nil
}

// spawn starts the claimed process or gives the claim back.
func (s *Session) spawn(ctx context.Context, p *Process, spec process.Spec) error {
	defer close(p.started)
	running, err := s.registry.supervisor.Start(ctx, spec)
	if err != nil {
		s.remove(p)
		s.registry.end()
		return err
	}
	p.Process = running
	s.registry.watchers.Go(p.watchClosed)
	s.registry.cfg.OnChange()
	return nil
}

// Process returns the process with the id. It never blocks: one that is still
// being started does not exist yet.
func (s *Session) Process(id string) (*Process, error) {
	s.mu.Lock()
	p := s.processes[id]
	s.mu.Unlock()
	if p == nil || !p.hasStarted() {
		return nil, &Error{Kind: ProcessNotFound, Subject: id}
	}
	return p, nil
}

// Processes returns up to limit processes with ids above after, by id, and
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

// remove takes the process's record away, if it is still there.
func (s *Session) remove(p *Process) {
	s.mu.Lock()
	if s.processes[p.id] == p {
		delete(s.processes, p.id)
	}
	s.mu.Unlock()
	s.registry.cfg.OnChange()
}

// expire removes the record once the retention of closed processes is over,
// counted anew, unless somebody has taken the process up by then.
func (s *Session) expire(p *Process, after time.Duration) {
	if after <= 0 {
		s.remove(p)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[p.id] != p {
		return
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.expiry = time.AfterFunc(after, func() {
		if p.isAtRest() {
			s.remove(p)
		}
	})
}

// forgetAll removes every record and stops what would remove it later.
func (s *Session) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.processes {
		if p.expiry != nil {
			p.expiry.Stop()
		}
		p.stopGrace()
		delete(s.processes, id)
	}
}
