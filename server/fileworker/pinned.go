package fileworker

import (
	"slices"
	"time"
)

// State is how much a worker has received of an object.
type State uint8

// The states.
const (
	Gone       State = iota // nothing
	Unfinished              // a part, to which more may come
	Complete                // all of it
)

// pinned is an object, such as an upload, that a worker receives or has received. While it is incomplete the worker is not
// stopped when it is idle.
type pinned struct {
	streams int         // number of streams that send it
	pins    bool        // it is incomplete
	done    func()      // ends its count; not nil while it pins and a stream sends it
	timer   *time.Timer // nil while a stream sends it
}

// Pin keeps the worker for the object with that name, as a lease does, until [Lease.Unpin] is called. Unless another stream
// sends the object already, count counts it; its error is returned. count is called with a lock held and must neither block
// nor use the pool.
func (l *Lease) Pin(name string, count func() (done func(), err error)) error {
	w, p := l.worker, l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.all[w]; !there {
		return nil // calls of the worker fail
	}
	k := w.pinned[name]
	switch {
	case k == nil || !k.pins:
		done, err := count()
		if err != nil {
			return err
		}
		w.forgetLocked(name)
		k = &pinned{pins: true, done: done}
		w.addUser()
		w.longLeases++
		if w.pinned == nil {
			w.pinned = make(map[string]*pinned)
		}
		w.pinned[name] = k
		p.serveLocked()
	case k.streams == 0:
		done, err := count()
		if err != nil {
			return err
		}
		k.done = done
		w.interrupted--
	}
	k.streams++
	k.stop()
	return nil
}

// Unpin ends what Pin began: a stream has ended, and the worker has this much of the object. For a time, an unfinished object
// keeps the worker unless another worker is needed, and [Set.Pinned] finds the object.
func (l *Lease) Unpin(name string, what State, retention time.Duration) {
	w, p := l.worker, l.worker.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	k := w.pinned[name]
	if k == nil { // the worker has ended
		return
	}
	if k.streams--; k.streams > 0 {
		return
	}
	switch what {
	case Gone:
		w.forgetLocked(name)
		return
	case Complete:
		w.unpinLocked(k)
		w.complete = append(w.complete, name)
		if len(w.complete) > p.options.Complete {
			w.forgetLocked(w.complete[0])
		}
	}
	if w.pinned[name] != k {
		return
	}
	if k.pins {
		k.done()
		k.done = nil
		w.interrupted++
		w.used = time.Now()
		p.serveLocked()
		if w.pinned[name] != k { // the worker was evicted
			return
		}
	}
	var timer *time.Timer
	timer = time.AfterFunc(retention, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if k.timer == timer { // otherwise it was stopped
			w.forgetLocked(name)
		}
	})
	k.timer = timer
}

func (k *pinned) stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// forgetLocked forgets the object with that name, if there is one.
func (w *worker) forgetLocked(name string) {
	k := w.pinned[name]
	if k == nil {
		return
	}
	delete(w.pinned, name)
	w.complete = slices.DeleteFunc(w.complete, func(other string) bool { return other == name })
	k.stop()
	w.unpinLocked(k)
}

// unpinLocked ends the lease of an object.
func (w *worker) unpinLocked(k *pinned) {
	if k.pins {
		k.pins = false
		if k.done != nil {
			k.done()
		} else {
			w.interrupted--
		}
		w.longLeases--
		w.leaveLocked()
	}
}

// Pinned returns a lease of each worker that has an object with that name, the last used first.
func (s *Set) Pinned(name string) []*Lease {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	var leases []*Lease
	for _, w := range s.byKey {
		if w.pinned[name] != nil {
			w.addUser()
			leases = append(leases, &Lease{worker: w})
		}
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return b.worker.used.Compare(a.worker.used) })
	return leases
}
