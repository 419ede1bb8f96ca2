package session

import (
	"errors"
	"maps"
	"slices"
)

// Resource is something that a session has beside its processes and that ends
// with it, such as its open files.
type Resource interface {
	// IsEmpty reports whether the resource is unused and can be removed. It must
	// not block, nor use the session.
	IsEmpty() bool
	// Close releases the resource; nothing can be added to it afterwards. It is
	// called when the session ends, possibly more than once.
	Close()
}

// ResourceKind is a kind of resource, of which every session has at most one.
type ResourceKind[T Resource] struct {
	key    *resourceKey
	create func(s *Session, emptied func()) T
}

// resourceKey identifies a kind by its address. It is not of size 0, so that no
// two kinds share one.
type resourceKey struct{ _ byte }

// NewResourceKind returns a new kind. create makes the resource of a session; it
// must not block, nor use the session but for its properties. The resource calls
// emptied whenever it becomes empty.
func NewResourceKind[T Resource](create func(s *Session, emptied func()) T) *ResourceKind[T] {
	return &ResourceKind[T]{key: new(resourceKey), create: create}
}

// resource is a resource of a session.
type resource struct {
	Resource
	users int // guarded by session.mu; calls of Add under way
}

// Find returns the resource of a session, if it has one. It never blocks.
func (k *ResourceKind[T]) Find(s *Session) (found T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[k.key]
	if r == nil {
		return found, false
	}
	return r.Resource.(T), true
}

// Add calls add with the resource of a session, which is made if the session has
// none. A resource that is empty afterwards is removed. The error is that of add,
// or of kind [Draining] or [SessionClosed]. Add blocks as long as add does.
func (k *ResourceKind[T]) Add(s *Session, add func(T) error) error {
	for {
		r, err := k.acquire(s)
		if other, ok := errors.AsType[*superseded](err); ok {
			s = other.by
			continue
		}
		if err != nil {
			return err
		}
		err = add(r.Resource.(T))
		if s.releaseResource(k.key, r) && err != nil {
			return &Error{Kind: SessionClosed, Subject: s.id}
		}
		return err
	}
}

// acquire returns the resource, which is not removed until releaseResource.
func (k *ResourceKind[T]) acquire(s *Session) (*resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over && s.lease == nil:
		return nil, s.registry.supersededBy(s)
	case s.over:
		return nil, &Error{Kind: SessionClosed, Subject: s.id}
	}
	if err := s.registry.makeDefault(s); err != nil {
		return nil, err
	}
	r := s.resources[k.key]
	if r == nil {
		r = &resource{}
		r.Resource = k.create(s, func() { s.removeIfEmpty(k.key, r) })
		if s.resources == nil {
			s.resources = make(map[*resourceKey]*resource)
		}
		s.resources[k.key] = r
	}
	r.users++
	return r, nil
}

// releaseResource reports whether the session has ended since acquire.
func (s *Session) releaseResource(key *resourceKey, r *resource) (over bool) {
	s.mu.Lock()
	r.users--
	over = s.over
	s.mu.Unlock()
	s.removeIfEmpty(key, r)
	return over
}

// removeIfEmpty removes a resource that is empty and that no Add is using.
func (s *Session) removeIfEmpty(key *resourceKey, r *resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[key] != r || r.users > 0 || !r.IsEmpty() {
		return
	}
	delete(s.resources, key)
	s.removeDefaultIfEmpty()
}

// closeResources closes all resources of the session, which is over, so that none
// is added.
func (s *Session) closeResources() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.resources))
	s.mu.Unlock()
	for _, r := range all {
		r.Close()
	}
}

// HasLease reports whether the session has a lease. The default session has none.
func (s *Session) HasLease() bool { return s.lease != nil }

// removeDefaultIfEmpty removes a default session that has nothing. s.mu is held.
func (s *Session) removeDefaultIfEmpty() {
	if len(s.processes) == 0 && len(s.resources) == 0 {
		s.registry.removeDefault(s)
	}
}

// makeDefault makes s the default session of its principal, if there is none yet. s.mu
// is held.
func (r *Registry) makeDefault(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.startErrorLocked(s); err != nil {
		return err
	}
	if s.lease == nil {
		r.defaults[s.principal] = s
	}
	return nil
}
