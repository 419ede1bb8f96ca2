package session

import "time"

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
		p.settle()
	}
}

// retain starts the retention of the record of a process at rest, from restAt. session.mu is held.
//
// Only a default session has records that are kept for longer than ClosedRetention: a
// leased one keeps a process until its end was acknowledged, and starts none with a time
// to keep. So they are all in one session, and its lock is enough to remove the oldest of
// a principal. What a session that is over still has is removed soon, and counts as seen.
func (p *Process) retain() {
	cfg, budget := p.session.registry.cfg(), p.session.registry.budget
	if p.Log().Stats().CanOffload {
		p.session.registry.background(p.offload)
	}
	p.seen = p.seen || allAcknowledged(p.Log())
	retention := time.Until(p.restAt.Add(cfg.UnseenRetention))
	switch {
	case p.session.over:
		retention = 0
	case p.keep > 0:
		retention = time.Until(p.closedAt.Add(p.keep))
	case p.seen:
		retention = 0
	}
	if retention <= cfg.ClosedRetention {
		budget.markAtRest(p, true)
		p.expire(cfg.ClosedRetention)
		return
	}
	budget.markAtRest(p, false)
	p.expire(retention)
	for {
		oldest := budget.oldestUnseen(p, cfg.UnseenPerPrincipal, cfg.UnseenBytesPerPrincipal)
		if oldest == nil {
			return
		}
		budget.markAtRest(oldest, true)
		oldest.expire(cfg.ClosedRetention - time.Since(oldest.restAt))
	}
}

// expire removes the record after the given time, unless the process has an owner by
// then. It replaces an earlier expiry. session.mu is held.
func (p *Process) expire(after time.Duration) {
	if after <= 0 {
		p.remove()
		return
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.expiry, p.expires = time.AfterFunc(after, p.removeIfAtRest), time.Now().Add(after)
}

// isAtRest reports whether the process has closed and has no owner. session.mu is
// held.
func (p *Process) isAtRest() bool { return p.closed && p.owner.state == unowned }

// removeIfAtRest removes the record of a process that is still at rest.
func (p *Process) removeIfAtRest() {
	p.session.lock()
	defer p.session.unlock()
	if p.isAtRest() {
		p.remove()
	}
}

// offload moves the output of the process to its file, and charges what stays in memory. It blocks
// on the disk.
func (p *Process) offload() {
	p.Log().Offload()
	s, held := p.session, p.heldBytes()
	s.lock()
	defer s.unlock()
	if p.isAtRest() && s.processes[p.id] == p {
		s.registry.budget.resize(p, held)
		s.changed = true
	}
}

// evict removes the record of a victim of the budget, or charges it again if it is in
// use.
func (p *Process) evict(bytes int64) {
	s := p.session
	s.lock()
	defer s.unlock()
	if p.isAtRest() {
		p.remove()
	} else if current := s.processes[p.id]; current == p || current != nil && current.replaces == p { // its record was not removed since
		s.registry.budget.resize(p, bytes)
	}
}

// remove removes the record of the process, if it is still there. One that is being started
// gives way to the one that it was to replace. session.mu is held.
func (p *Process) remove() {
	s := p.session
	switch current := s.processes[p.id]; {
	case current == nil:
		return
	case current.replaces == p:
		current.replaces = nil
	case current != p:
		return
	case p.replaces != nil:
		s.processes[p.id], p.replaces = p.replaces, nil
	default:
		delete(s.processes, p.id)
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if p.owner.grace != nil {
		p.owner.grace.timer.Stop()
	}
	if p.hasStarted() && (!p.Log().Stats().HasFile || !s.registry.background(p.Log().Discard)) {
		p.Log().Discard() // without a file it does not block; or the registry closes, and session.mu delays nobody
	}
	s.registry.budget.resize(p, 0)
	s.changed = true
	if p.recorded && !s.closing {
		p.forgotten = true
		s.forgotten = append(s.forgotten, p)
	}
	s.removeDefaultIfEmpty()
}
