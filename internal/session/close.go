package session

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/execwire/execwire/internal/notify"
)

// CloseSession ends a session of the principal: it ends the attachment, terminates
// the processes with all descendants, and removes the records. It blocks until all of
// that is done; if ctx ends first, it returns the cause and the work continues. A
// closed default session is empty when it is next used. Kinds [SessionNotFound] and
// [SessionAccessDenied].
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
	return notify.Wait(ctx, s.ended)
}

// toClose returns the session to close, which may be closing already; nil if it is an
// empty default session.
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

// end makes the session over, once. It is a hook of the lease. The processes are
// terminated in the background, unless the registry closes, which has ended them.
func (s *Session) end(before *holder) {
	s.lock()
	if s.over { // by another call, of a default session
		s.unlock()
		return
	}
	s.over = true
	s.reading = s.closing && before != nil
	closing := s.closing
	all := s.releaseAll()
	s.registry.endDefault(s)
	s.unlock()
	if closing || !s.registry.background(func() { s.terminate(all) }) {
		s.closeResources()
		s.finish()
	}
}

// releaseAll ends the feed and all ownerships, and returns all processes. s.mu is
// held.
func (s *Session) releaseAll() []*Process {
	all := slices.Collect(maps.Values(s.processes))
	if s.reading {
		s.feed.finish(&Error{Kind: Draining})
		return all
	}
	if s.feed != nil {
		s.feed.fail(&Error{Kind: SessionClosed, Subject: s.id})
	}
	s.feed = nil
	for _, p := range all {
		if p.assigned {
			p.release()
		}
	}
	return all
}

// release frees the log of a process whose session is over, so that it can end. A
// stream that owns it still receives the end. session.mu is held.
func (p *Process) release() {
	if p.owner.stream != nil {
		p.Log().Free()
		return
	}
	p.releaseOwner(currentOwner{}, false)
	p.settle()
}

// terminate ends all resources and processes, including those being started, and then
// the session.
func (s *Session) terminate(all []*Process) {
	var group sync.WaitGroup
	group.Go(s.closeResources)
	for _, p := range all {
		group.Go(func() {
			<-p.started
			if p.Process != nil {
				kill(p.Process)
				<-p.Closed()
			}
		})
	}
	group.Wait()
	s.finish()
}

// finish removes what is left of the session.
func (s *Session) finish() {
	s.forgetAll()
	s.registry.removeSession(s)
	close(s.ended)
}

// shutDown ends the session when the registry closes, after all processes have ended.
// An attachment still reads the rest of their events.
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
