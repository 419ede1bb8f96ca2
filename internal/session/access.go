package session

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// MaxGrants is how many principals a session can be granted to.
const MaxGrants = 100

// Access is what a principal may do in a session. More includes less.
type Access uint8

// The degrees of access.
const (
	// AccessNone: the session does not exist for the principal.
	AccessNone Access = iota
	// AccessView: look at processes and their output.
	AccessView
	// AccessWrite: also write, resize, signal and terminate.
	AccessWrite
	// AccessOwner: everything, which only the session's own principal may.
	AccessOwner
)

// Info describes a leased session at one moment.
type Info struct {
	// ID and Principal are whose session it is.
	ID, Principal string
	// Attached is set while somebody is attached.
	Attached bool
	// Created is when the session was made.
	Created time.Time
	// Expires is when it ends unless somebody attaches; zero while attached.
	Expires time.Time
	// Processes is the number of its processes, closed ones included.
	Processes int
	// Grace is how long it is kept without an attachment.
	Grace time.Duration
	// WhenDetached is its policy for that time, never WhenDetachedUnchanged.
	WhenDetached WhenDetached
	// Grants is what other principals may do in it. Nil unless the one who asks
	// is the session's own principal.
	Grants map[string]Access
}

// OpenFor returns the session with that id if the principal may access it so:
// its own, as [Registry.Open] does, or one that was granted to it. Kind
// [SessionNotFound] without a grant, [SessionAccessDenied] with too little of
// one. It never blocks.
func (r *Registry) OpenFor(principal, id string, access Access) (*Session, error) {
	if id == "" || id == DefaultID {
		return r.Open(principal, id)
	}
	s, granted := r.find(principal, id)
	switch {
	case granted == AccessNone || s.lease.terms().over:
		return nil, &Error{Kind: SessionNotFound, Subject: id}
	case granted < access:
		return nil, &Error{Kind: SessionAccessDenied, Subject: id}
	}
	return s, nil
}

// find returns a leased session and what the principal may do in it.
func (r *Registry) find(principal, id string) (*Session, Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.leased[id]
	switch {
	case s == nil:
		return nil, AccessNone
	case s.principal == principal:
		return s, AccessOwner
	}
	return s, s.grants[principal]
}

// Info describes the session as the principal may see it. It never blocks.
func (s *Session) Info(principal string) Info {
	t := s.lease.terms()
	s.mu.Lock()
	info := Info{
		ID: s.id, Principal: s.principal, Created: s.created,
		Attached: t.attached, Expires: t.expires, Grace: t.grace,
		Processes: len(s.processes), WhenDetached: s.whenDetached,
	}
	s.mu.Unlock()
	if principal == s.principal {
		s.registry.mu.Lock()
		info.Grants = maps.Clone(s.grants)
		s.registry.mu.Unlock()
	}
	return info
}

// Sessions returns up to limit leased sessions that the principal may see, its
// own and those granted to it, with ids above after, by id, and whether there
// are more. It never blocks.
func (r *Registry) Sessions(principal, after string, limit int) (list []Info, more bool) {
	var found []*Session
	r.mu.Lock()
	for id, s := range r.leased {
		if id > after && (s.principal == principal || s.grants[principal] > AccessNone) {
			found = append(found, s)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(found, func(a, b *Session) int { return strings.Compare(a.id, b.id) })
	for _, s := range found {
		if s.lease.terms().over {
			continue
		}
		if len(list) == limit {
			return list, true
		}
		list = append(list, s.Info(principal))
	}
	return list, false
}

// Grant lets another principal access a leased session of the principal, from
// now on and to that degree; AccessNone takes it back. Kinds [SessionNotFound],
// [DefaultSession], [TooManyGrants]. It never blocks.
func (r *Registry) Grant(principal, id, to string, access Access) (Info, error) {
	if id == "" || id == DefaultID {
		return Info{}, &Error{Kind: DefaultSession, Subject: DefaultID}
	}
	s, err := r.Open(principal, id)
	if err != nil {
		return Info{}, err
	}
	if err := s.grant(to, access); err != nil {
		return Info{}, err
	}
	return s.Info(principal), nil
}

func (s *Session) grant(to string, access Access) error {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
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
