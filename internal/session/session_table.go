package session

import (
	"maps"
	"slices"
	"sync"
)

// sessionTable has the sessions of a registry and the grants, counts the processes, and says what may
// still begin.
type sessionTable struct {
	mu        sync.Mutex
	defaults  map[string]*Session // guarded by mu; default sessions that are not empty, by principal
	ending    map[string]*Session // guarded by mu; default sessions being closed, the last of each principal
	leased    map[string]*Session // guarded by mu; leased sessions by id
	counts    map[string]int      // guarded by mu; leased sessions by principal
	draining  bool                // guarded by mu
	running   int                 // guarded by mu; processes that have not closed
	allClosed chan struct{}       // guarded by mu; closed when draining and running == 0
	active    int                 // guarded by mu; processes that were never at rest
	allAtRest chan struct{}       // guarded by mu; closed when draining and active == 0
	frozen    *frozen             // set and cleared under mu; nil: not frozen
}

// find returns a leased session and the access of the principal.
func (t *sessionTable) find(principal, id string) (*Session, Access) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.leased[id]
	switch {
	case s == nil:
		return nil, AccessNone
	case s.principal == principal:
		return s, AccessOwner
	}
	return s, s.grants[principal]
}

func (t *sessionTable) grant(s *Session, to string, access Access) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch _, has := s.grants[to]; {
	case access == AccessNone:
		delete(s.grants, to)
		return nil
	case !has && len(s.grants) >= MaxGrants:
		return &Error{Kind: TooManyGrants, Subject: s.id, Limit: MaxGrants}
	}
	if s.grants == nil {
		s.grants = make(map[string]Access)
	}
	s.grants[to] = min(access, AccessWrite)
	return nil
}

// superseded means that another session has become the default session of the
// principal since this one was found empty.
type superseded struct{ by *Session }

func (*superseded) Error() string { return "another default session has begun" }

// startError returns why no process can be started in s, or nil. s.mu is held.
func (t *sessionTable) startError(s *Session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startErrorLocked(s)
}

func (t *sessionTable) startErrorLocked(s *Session) error {
	if t.draining || t.frozen != nil {
		return &Error{Kind: Draining}
	}
	if now := t.defaults[s.principal]; s.lease == nil && now != nil && now != s {
		return &superseded{by: now}
	}
	return nil
}

// makeDefault makes a session without a lease the default session of its principal, or
// returns why nothing can be started in it. s.mu is held.
func (t *sessionTable) makeDefault(s *Session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.makeDefaultLocked(s)
}

func (t *sessionTable) makeDefaultLocked(s *Session) error {
	if err := t.startErrorLocked(s); err != nil {
		return err
	}
	if s.lease == nil {
		t.defaults[s.principal] = s
	}
	return nil
}

// removeDefault removes a default session that has become empty, so that principals
// leave nothing behind. s.mu is held.
func (t *sessionTable) removeDefault(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.lease == nil && t.defaults[s.principal] == s {
		delete(t.defaults, s.principal)
	}
}

// endDefault removes a default session that is over, but keeps it for calls that wait
// for its end. s.mu is held.
func (t *sessionTable) endDefault(s *Session) {
	t.removeDefault(s)
	if s.lease != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending[s.principal] = s
}

// removeSession removes a session that has ended from the tables.
func (t *sessionTable) removeSession(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending[s.principal] == s {
		delete(t.ending, s.principal)
	}
	if s.lease == nil || t.leased[s.id] != s {
		return
	}
	delete(t.leased, s.id)
	if t.counts[s.principal]--; t.counts[s.principal] == 0 {
		delete(t.counts, s.principal)
	}
}

// countClosed counts a process that has closed, or did not start.
func (t *sessionTable) countClosed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.draining && t.running == 0 {
		close(t.allClosed)
	}
}

// countAtRest counts a process that is at rest for the first time, or did not start.
func (t *sessionTable) countAtRest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active--; t.draining && t.active == 0 {
		close(t.allAtRest)
	}
}

// refuseStarts refuses starts and new sessions, and returns all sessions.
func (t *sessionTable) refuseStarts() ([]*Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining || t.frozen != nil {
		return nil, &Error{Kind: Draining}
	}
	t.frozen = &frozen{}
	sessions := slices.Collect(maps.Values(t.leased))
	sessions = slices.AppendSeq(sessions, maps.Values(t.defaults))
	return slices.AppendSeq(sessions, maps.Values(t.ending)), nil
}
