package fsops

import (
	"context"
	"sync"
)

// keyedMutex is a mutex for each key. The zero value is ready for use.
type keyedMutex[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*keyedLock // guarded by mu
}

// keyedLock is the mutex of one key. It exists while it is held or waited for.
type keyedLock struct {
	token chan struct{} // has an element while the mutex is held
	refs  int           // guarded by keyedMutex.mu; holder and waiters
}

// lock acquires the mutex of a key, which unlock releases.
func (m *keyedMutex[K]) lock(ctx context.Context, key K) (unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks = make(map[K]*keyedLock)
	}
	l := m.locks[key]
	if l == nil {
		l = &keyedLock{token: make(chan struct{}, 1)}
		m.locks[key] = l
	}
	l.refs++
	m.mu.Unlock()
	select {
	case l.token <- struct{}{}:
		return func() { <-l.token; m.release(key, l) }, nil
	case <-ctx.Done():
		m.release(key, l)
		return nil, context.Cause(ctx)
	}
}

func (m *keyedMutex[K]) release(key K, l *keyedLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(m.locks, key)
	}
}
