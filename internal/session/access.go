package session

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// MaxGrants is how many grants a session can have.
const MaxGrants = 100

// Access is what a principal may do in a session. Higher values include lower ones.
type Access uint8

// The values of Access.
const (
	// AccessNone: the session does not exist for the principal.
	AccessNone Access = iota
	// AccessView: read processes and their output.
	AccessView
	// AccessWrite: also write, resize, signal and terminate.
	AccessWrite
	// AccessOwner: everything; only for the session's own principal.
	AccessOwner
)

// Info describes a leased session at one moment.
type Info struct {
	// ID and Principal identify the session and its owner.
	ID, Principal string
	// Attached is set while a client is attached.
	Attached bool
	// Created is when the session was created.
	Created time.Time
	// Expires is when the session ends unless a client attaches; zero while attached.
	Expires time.Time
	// Processes is the number of its processes, including closed ones.
	Processes int
	// Grace is how long the session is kept without an attachment.
	Grace time.Duration
	// WhenDetached is its policy, never WhenDetachedUnchanged.
	WhenDetached WhenDetached
	// Grants is the access of other principals. Nil unless the session's own
	// principal asks.
	Grants map[string]Access
}

// Open returns the session with that id if the principal has that access to it: its
// own, or one that was granted to it. An empty id is the principal's default session,
// which always exists and costs nothing while it is empty. Kind [SessionNotFound]
// without a grant, [SessionAccessDenied] with too little access. It never blocks.
func (r *Registry) Open(principal, id string, access Access) (*Session, error) {
	if id == "" || id == DefaultID {
		return r.defaultSession(principal), nil
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

// Info describes the session for the principal. It never blocks.
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

// Sessions returns up to limit leased sessions that the principal may access, its own
// and those granted to it, with ids above after, ordered by id, and whether there are
// more. It never blocks.
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

// Grant sets the access of another principal to a leased session of the principal;
// AccessNone removes it. Kinds [DefaultSession], [TooManyGrants] and those of
// [Registry.Open]. It never blocks.
func (r *Registry) Grant(principal, id, to string, access Access) (Info, error) {
	if id == "" || id == DefaultID {
		return Info{}, &Error{Kind: DefaultSession, Subject: DefaultID}
	}
	s, err := r.Open(principal, id, AccessOwner)
	if err != nil {
		return Info{}, err
	}
	if err := r.grant(s, to, access); err != nil {
		return Info{}, err
	}
	return s.Info(principal), nil
}
