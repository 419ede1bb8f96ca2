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
	session *Session
	key     *resourceKey
	users   int // guarded by session.mu; calls of Add under way
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
		if r.release() && err != nil {
			return &Error{Kind: SessionClosed, Subject: s.id}
		}
		return err
	}
}

// acquire returns the resource, which is not removed until it is released.
func (k *ResourceKind[T]) acquire(s *Session) (*resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.overError(); err != nil {
		return nil, err
	}
	if err := s.registry.makeDefault(s); err != nil {
		return nil, err
	}
	r := s.resources[k.key]
	if r == nil {
		r = &resource{session: s, key: k.key}
		r.Resource = k.create(s, r.removeIfEmpty)
		if s.resources == nil {
			s.resources = make(map[*resourceKey]*resource)
		}
		s.resources[k.key] = r
	}
	r.users++
	return r, nil
}

// release reports whether the session has ended since acquire.
func (r *resource) release() (over bool) {
	r.session.mu.Lock()
	r.users--
	over = r.session.over
	r.session.mu.Unlock()
	r.removeIfEmpty()
	return over
}

// removeIfEmpty removes a resource that is empty and that no Add is using.
func (r *resource) removeIfEmpty() {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[r.key] != r || r.users > 0 || !r.IsEmpty() {
		return
	}
	delete(s.resources, r.key)
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
