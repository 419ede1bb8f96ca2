package session

import (
	"container/list"
	"time"
)

// unseenList are the closed processes of a session whose exit was not seen and that
// are therefore kept for longer, oldest first. Only a default session has any: a
// leased one keeps a process until its end was acknowledged. So the limit of the list
// is one per principal. The zero value is empty.
type unseenList struct{ list list.List }

// add appends a process, if it is not in the list. session.mu is held.
func (u *unseenList) add(p *Process) {
	if p.unseen == nil {
		p.unseen = u.list.PushBack(p)
	}
}

// remove removes a process, if it is in the list. session.mu is held.
func (u *unseenList) remove(p *Process) {
	if p.unseen != nil {
		u.list.Remove(p.unseen)
		p.unseen = nil
	}
}

// excess removes and returns the oldest process if there are more than most, or
// returns nil. session.mu is held.
func (u *unseenList) excess(most int) *Process {
	if u.list.Len() <= most {
		return nil
	}
	p := u.list.Front().Value.(*Process)
	u.remove(p)
	return p
}

// Seen records that a caller has received the exit record of the process, which
// starts the retention of a closed process whose exit was seen. Only the session's
// own principal counts. An owner does not call it: its acknowledgement counts. It
// does not block.
func (p *Process) Seen(principal string) {
	s := p.session
	if principal != s.principal {
		return
	}
	s.lock()
	defer s.unlock()
	if !p.seen {
		p.seen = true
		s.settle(p)
	}
}

// retain starts the retention of the record of a process at rest. s.mu is held.
func (s *Session) retain(p *Process) {
	cfg := &s.registry.cfg
	p.seen = p.seen || p.allAcknowledged()
	p.restAt = time.Now()
	if p.seen || cfg.UnseenRetention <= cfg.ClosedRetention {
		s.unseen.remove(p)
		s.registry.budget.markAtRest(p, true)
		s.expire(p, cfg.ClosedRetention)
		return
	}
	s.unseen.add(p)
	s.registry.budget.markAtRest(p, false)
	s.expire(p, cfg.UnseenRetention)
	for {
		oldest := s.unseen.excess(cfg.UnseenPerPrincipal)
		if oldest == nil {
			return
		}
		s.registry.budget.markAtRest(oldest, true)
		s.expire(oldest, cfg.ClosedRetention-time.Since(oldest.restAt))
	}
}
