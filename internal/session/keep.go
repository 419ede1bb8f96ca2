package session

import (
	"errors"

	"github.com/execwire/execwire/internal/eventlog"
)

// keep gives a process that no stream owns to whoever keeps the processes of its
// session: in a leased one the attachment or the spooler, or nobody with its
// output held or not. The end of the process is kept in any case. s.mu is held.
func (s *Session) keep(p *Process) {
	switch {
	case s.lease == nil || s.over || p.isTaken():
		p.vacate(ownerState{}, false)
	case !s.attached && s.whenDetached == WhenDetachedDiscardOldest:
		p.vacate(ownerState{situation: held}, false)
	case s.feed == nil || s.enter(p, nil) != nil:
		p.vacate(ownerState{situation: held}, true)
	}
	s.settle(p)
}

// enter puts a process into the feed of whoever keeps them, after what was
// acknowledged or after afterSeq. s.mu is held.
func (s *Session) enter(p *Process, afterSeq *uint64) error {
	p.seal()
	c, err := p.newCursorFor(s.attached, afterSeq)
	if err != nil {
		return err
	}
	p.become(ownerState{situation: fed})
	p.owner.item = s.feed.add(p, c)
	return nil
}

// newCursorFor returns a cursor for an attachment or for the spooler. session.mu
// is held.
func (p *Process) newCursorFor(attachment bool, afterSeq *uint64) (*cursor, error) {
	if attachment {
		return newCursor(p.Log(), p.backlog, afterSeq)
	}
	if p.backlog == nil {
		p.backlog = &backlog{spool: p.session.spool}
	}
	return newSpoolCursor(p.Log(), p.backlog)
}

// isTaken reports whether the process has closed and all that it said was
// acknowledged. session.mu is held.
func (p *Process) isTaken() bool {
	if p.backlog == nil {
		return isTaken(p.Log())
	}
	return p.backlog.isTaken(p.Log())
}

// isTaken reports it of a log.
func isTaken(log *eventlog.Log) bool {
	stats := log.Stats()
	return stats.Closed && stats.Acknowledged >= stats.LastSeq
}

// settle does what follows when a process has closed, was acknowledged, or has
// changed hands: one that is finished with is let go, and the retention of its
// record begins. s.mu is held.
func (s *Session) settle(p *Process) {
	if !p.closed {
		return
	}
	if (p.owner.situation == fed || p.owner.situation == held) && p.isTaken() {
		p.vacate(ownerState{}, false)
	}
	if p.owner.situation != free {
		return
	}
	if !p.rested {
		p.rested = true
		s.registry.processRests()
	}
	if s.processes[p.id] == p {
		s.retain(p)
	}
	s.changed = true
}

// attaching is what an attachment asked for, as far as the lease does not look at
// it.
type attaching struct {
	afterSeq     map[string]uint64
	whenDetached WhenDetached
	maxProcesses int
	spool        *spool // made for it; nil: none was needed
}

// admit refuses an attachment that names what is not there yet. It is called
// under the lease's lock, just before the attachment is granted.
func (s *Session) admit(a *attaching) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, seq := range a.afterSeq {
		if p := s.processes[id]; p != nil && p.kept {
			if err := p.reached(seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// onAttached gives the new holder every process that no stream owns.
func (s *Session) onAttached(now, before *holder) {
	s.lock()
	defer s.unlock()
	if before != nil {
		before.feed.fail(&Error{Kind: SessionTakenOver, Subject: s.id})
	} else if s.feed != nil {
		s.feed.fail(ErrDetached) // the spooler's
	}
	if now.request.whenDetached != WhenDetachedUnchanged {
		s.whenDetached = now.request.whenDetached
	}
	s.maxProcesses = now.request.maxProcesses
	if s.spool == nil {
		s.spool, now.request.spool = now.request.spool, nil
	}
	s.feed, s.attached = now.feed, true
	for _, p := range s.processes {
		if !p.kept {
			continue
		}
		if p.owner.stream != nil || p.owner.situation == grace {
			s.feed.released(p.id)
			continue
		}
		var afterSeq *uint64
		if seq, ok := now.request.afterSeq[p.id]; ok {
			afterSeq = &seq
		}
		s.resume(p, afterSeq)
	}
	now.request.afterSeq = nil // there can be many, and an attachment lasts long
}

// resume gives a process to a new attachment, unless that has all of it. s.mu is
// held.
func (s *Session) resume(p *Process, afterSeq *uint64) {
	if p.isTaken() && (afterSeq == nil || *afterSeq >= p.Log().Stats().LastSeq) {
		s.settle(p)
		return
	}
	// It can only fail when too many owners were replaced and none has let go,
	// and those before this one have.
	if err := s.enter(p, afterSeq); err == nil {
		s.settle(p)
	}
}

// onDetached leaves the processes to the session's policy.
func (s *Session) onDetached(before *holder) {
	s.lock()
	defer s.unlock()
	before.feed.fail(ErrDetached)
	s.feed, s.attached = nil, false
	if s.whenDetached == WhenDetachedSpool && s.spool != nil {
		if sp := s.startSpooler(); sp != nil {
			s.spooler, s.feed = sp, sp.feed
		}
	}
	for _, p := range s.processes {
		if p.kept && p.owner.situation == fed {
			s.keep(p)
		}
	}
}

// isDismissed reports errors of a cursor from which the process was taken away.
func isDismissed(err error) bool {
	return errors.Is(err, eventlog.ErrReplaced) || errors.Is(err, eventlog.ErrFreed) || errors.Is(err, eventlog.ErrClosed)
}
