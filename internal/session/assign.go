package session

import (
	"errors"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
)

// assignOwner gives a process without a stream to the attachment of its session. If
// there is none, the session's policy decides whether its output is held. The end of
// the process is kept in any case. session.mu is held.
func (p *Process) assignOwner() {
	s := p.session
	switch {
	case s.lease == nil || s.over || allAcknowledged(p.Log()):
		p.releaseOwner(currentOwner{}, false)
	case s.feed == nil && s.whenDetached == WhenDetachedDiscardOldest:
		p.releaseOwner(currentOwner{state: sessionDetached}, false)
	case s.feed == nil || p.addToFeed(nil) != nil:
		p.releaseOwner(currentOwner{state: sessionDetached}, true)
	}
	p.settle()
}

// addToFeed adds a process to the feed of the attachment, from the last acknowledged
// event or after afterSeq. session.mu is held.
func (p *Process) addToFeed(afterSeq *uint64) error {
	var log *eventlog.Owner
	var err error
	if afterSeq != nil {
		log, err = p.Log().Own(*afterSeq)
	} else {
		log, err = p.Log().OwnAcknowledged()
	}
	if err != nil {
		return err
	}
	p.setOwner(currentOwner{state: attachmentOwned})
	p.owner.item = p.session.feed.add(p, log)
	return nil
}

// allAcknowledged reports whether a log is closed and all its events were acknowledged.
func allAcknowledged(log *eventlog.Log) bool {
	stats := log.Stats()
	return stats.Closed && stats.Acknowledged >= stats.LastSeq
}

// settle updates a closed process after it has closed, was acknowledged or has
// changed its owner: when all is acknowledged it is released, and the retention of
// its record starts. session.mu is held.
func (p *Process) settle() {
	if !p.closed {
		return
	}
	if (p.owner.state == attachmentOwned || p.owner.state == sessionDetached) && allAcknowledged(p.Log()) {
		p.releaseOwner(currentOwner{}, false)
	}
	if p.owner.state != unowned {
		return
	}
	if !p.wasAtRest {
		p.wasAtRest = true
		p.session.registry.countAtRest()
	}
	if p.session.processes[p.id] == p {
		p.restAt = time.Now()
		p.retain()
	}
	p.session.changed = true
}

// checkCursors rejects cursors beyond the last event of a process. It is called under
// the lease's lock, just before the attachment is granted.
func (s *Session) checkCursors(afterSeq map[string]uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, seq := range afterSeq {
		if p := s.processes[id]; p != nil && p.assigned {
			if err := p.checkReached(seq); err != nil {
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
		now.displaced = true
	}
	if now.whenDetached != WhenDetachedUnchanged {
		s.whenDetached = now.whenDetached
	}
	s.maxProcesses = now.maxProcesses
	s.feed = now.feed
	for _, p := range s.processes {
		if !p.assigned {
			continue
		}
		if p.owner.stream != nil || p.owner.state == inGrace {
			s.feed.addRelease(p.id)
			continue
		}
		var afterSeq *uint64
		if seq, ok := now.afterSeq[p.id]; ok {
			afterSeq = &seq
		}
		p.resume(afterSeq)
	}
	now.afterSeq = nil // may be large, and the attachment is long-lived
}

// resume gives a process to a new attachment, unless the client has all of it.
// session.mu is held.
func (p *Process) resume(afterSeq *uint64) {
	if allAcknowledged(p.Log()) && (afterSeq == nil || *afterSeq >= p.Log().Stats().LastSeq) {
		p.settle()
		return
	}
	// This only fails when too many replaced owners were not released, and the
	// attachments before this one were.
	if err := p.addToFeed(afterSeq); err == nil {
		p.settle()
	}
}

// onDetached applies the session's policy to the processes.
func (s *Session) onDetached(before *holder) {
	s.lock()
	defer s.unlock()
	before.feed.fail(ErrDetached)
	s.feed = nil
	for _, p := range s.processes {
		if p.assigned && p.owner.state == attachmentOwned {
			p.assignOwner()
		}
	}
}

// isOwnershipLost reports errors of an owner that does not own its log any more.
func isOwnershipLost(err error) bool {
	return errors.Is(err, eventlog.ErrReplaced) || errors.Is(err, eventlog.ErrClosed)
}
