package session

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// CloseSession ends a session of the principal: whoever is attached is told so,
// its processes are terminated with all their descendants, and it is gone, its
// records too. It blocks until nothing of it is left; if ctx ends first its cause
// is returned and the rest is done nevertheless. The default session comes back
// empty when it is next used. Kinds [SessionNotFound] and [SessionAccessDenied].
func (r *Registry) CloseSession(ctx context.Context, principal, id string) error {
	s, err := r.toClose(principal, id)
	if s == nil || err != nil {
		return err
	}
	if s.lease != nil {
		s.lease.close()
	} else {
		s.end(nil)
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// toClose returns the session whose end is to begin, or has begun and is to be
// waited for; nil if it is a default session that is empty.
func (r *Registry) toClose(principal, id string) (*Session, error) {
	if id == "" || id == DefaultID {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s := r.defaults[principal]; s != nil {
			return s, nil
		}
		return r.ending[principal], nil
	}
	s, access := r.find(principal, id)
	switch access {
	case AccessNone:
		return nil, &Error{Kind: SessionNotFound, Subject: id}
	case AccessOwner:
		return s, nil
	}
	return nil, &Error{Kind: SessionAccessDenied, Subject: id}
}

// end makes the session over, once: it is the lease's hook, and a default session
// makes room for the next. The processes are terminated in the background, unless
// the registry closes, which has ended them.
func (s *Session) end(before *holder) {
	s.lock()
	if s.over { // by another caller, of a default session
		s.unlock()
		return
	}
	s.over = true
	s.registry.conclude(s)
	s.reading = s.closing && before != nil
	closing := s.closing
	all := s.letAllGo()
	s.unlock()
	if closing || !s.registry.background(func() { s.terminate(all) }) {
		s.closeBelongings()
		s.finish()
	}
}

// letAllGo ends the feed, and returns all processes. s.mu is held.
func (s *Session) letAllGo() []*Process {
	all := slices.Collect(maps.Values(s.processes))
	if s.reading {
		s.feed.finish(&Error{Kind: Draining})
		return all
	}
	if s.feed != nil {
		s.feed.fail(&Error{Kind: SessionClosed, Subject: s.id})
	}
	s.feed, s.attached = nil, false
	for _, p := range all {
		if p.kept {
			s.letGo(p)
		}
	}
	return all
}

// letGo has nobody pace a process any more, so that it can come to its end. A
// stream that owns it is told that end. s.mu is held.
func (s *Session) letGo(p *Process) {
	if p.owner.stream != nil {
		p.Log().Free()
		return
	}
	p.vacate(ownerState{}, false)
	s.settle(p)
}

// terminate ends all belongings and all processes at once, those being started
// included, and then the session.
func (s *Session) terminate(all []*Process) {
	var group sync.WaitGroup
	group.Go(s.closeBelongings)
	for _, p := range all {
		group.Go(func() {
			<-p.started
			if p.Process != nil {
				p.kill()
				<-p.Closed()
			}
		})
	}
	group.Wait()
	s.finish()
}

// finish forgets what is left of the session.
func (s *Session) finish() {
	s.forgetAll()
	s.mu.Lock()
	reading := s.reading
	s.mu.Unlock()
	if !reading {
		s.closeSpool()
	}
	s.registry.drop(s)
	close(s.ended)
}

// closeSpool gives up what was spooled and not read, if anything was.
func (s *Session) closeSpool() {
	s.mu.Lock()
	sp := s.spool
	s.mu.Unlock()
	if sp != nil {
		sp.close()
	}
}

// drop forgets a session that has ended.
func (r *Registry) drop(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending[s.principal] == s {
		delete(r.ending, s.principal)
	}
	if s.lease == nil || r.leased[s.id] != s {
		return
	}
	delete(r.leased, s.id)
	if r.counts[s.principal]--; r.counts[s.principal] == 0 {
		delete(r.counts, s.principal)
	}
}

// shutDown ends the session with the registry, after all processes have. An
// attachment reads to the end of them, and closes the spool when it leaves.
func (s *Session) shutDown() {
	s.lock()
	over := s.over
	s.closing = true
	s.unlock()
	switch {
	case s.lease != nil:
		s.lease.close()
	case !over:
		s.end(nil)
	}
}
