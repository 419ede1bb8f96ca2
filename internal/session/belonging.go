package session

import (
	"errors"
	"maps"
	"slices"
)

// Belonging is what a session has beside its processes, and what ends with it.
type Belonging interface {
	// IsEmpty reports whether there is nothing in it, so that it can be forgotten.
	// It must not block, nor use the session.
	IsEmpty() bool
	// Close ends what is in it, and has nothing more come to be in it. It is called
	// when the session ends, and may be called more than once.
	Close()
}

// belonging is one of a session, with who is about to put something into it.
type belonging struct {
	Belonging
	users int // guarded by session.mu
}

// Belonging returns what the session has under a key, and nil if it has nothing.
// It never blocks.
func (s *Session) Belonging(key any) Belonging {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.belongings[key]; b != nil {
		return b.Belonging
	}
	return nil
}

// HasLease reports whether the session ends when nobody has been attached to it
// for its grace. A default session has no lease.
func (s *Session) HasLease() bool { return s.lease != nil }

// AddTo calls add with what the session has under a key, which begin makes if it
// has nothing. What is empty after that is forgotten; begin is told whom to call
// if it becomes so later. The error is that of add, or of kind [Draining] or
// [SessionClosed]. It blocks as long as add does.
func (s *Session) AddTo(key any, begin func(s *Session, emptied func()) Belonging, add func(Belonging) error) error {
	for {
		b, err := s.borrow(key, begin)
		if other, ok := errors.AsType[*superseded](err); ok {
			s = other.by
			continue
		}
		if err != nil {
			return err
		}
		err = add(b.Belonging)
		if s.giveBack(key, b) && err != nil {
			return &Error{Kind: SessionClosed, Subject: s.id}
		}
		return err
	}
}

// borrow keeps a belonging from being forgotten until giveBack.
func (s *Session) borrow(key any, begin func(s *Session, emptied func()) Belonging) (*belonging, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over && s.lease == nil:
		return nil, s.registry.superseding(s)
	case s.over:
		return nil, &Error{Kind: SessionClosed, Subject: s.id}
	}
	if err := s.registry.adopt(s); err != nil {
		return nil, err
	}
	b := s.belongings[key]
	if b == nil {
		b = &belonging{}
		b.Belonging = begin(s, func() { s.forgetIfEmpty(key, b) })
		if s.belongings == nil {
			s.belongings = make(map[any]*belonging)
		}
		s.belongings[key] = b
	}
	b.users++
	return b, nil
}

// giveBack reports whether the session ended meanwhile.
func (s *Session) giveBack(key any, b *belonging) (over bool) {
	s.mu.Lock()
	b.users--
	over = s.over
	s.mu.Unlock()
	s.forgetIfEmpty(key, b)
	return over
}

// forgetIfEmpty removes a belonging that has nothing in it, and that nobody is
// about to put something into.
func (s *Session) forgetIfEmpty(key any, b *belonging) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.belongings[key] != b || b.users > 0 || !b.IsEmpty() {
		return
	}
	delete(s.belongings, key)
	s.vacateIfEmpty()
}

// closeBelongings ends what the session has beside its processes. It is over, so
// that nothing is added.
func (s *Session) closeBelongings() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.belongings))
	s.mu.Unlock()
	for _, b := range all {
		b.Close()
	}
}

// vacateIfEmpty forgets a default session that has nothing. s.mu is held.
func (s *Session) vacateIfEmpty() {
	if len(s.processes) == 0 && len(s.belongings) == 0 {
		s.registry.vacate(s)
	}
}

// adopt makes a default session the principal's, if none is yet. s.mu is held.
func (r *Registry) adopt(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refusalLocked(s); err != nil {
		return err
	}
	if s.lease == nil {
		r.defaults[s.principal] = s
	}
	return nil
}
