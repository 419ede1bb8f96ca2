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
	lease   *Lease      // keeps the worker; nil once the object is complete
	streams int         // number of streams that send it
	done    func()      // ends its count; not nil while a stream sends it
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
	if k == nil || k.streams == 0 {
		done, err := count()
		if err != nil {
			return err
		}
		if k != nil && k.lease != nil {
			w.interrupted--
		} else {
			w.forgetLocked(name)
			k = &pinned{lease: w.leaseLocked(true)}
			w.pinned[name] = k
			p.serveLocked()
		}
		k.done = done
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
	case Unfinished:
		k.done()
		k.done = nil
		w.interrupted++
		w.used = time.Now()
		w.forgetAfter(name, k, retention)
		p.serveLocked() // the worker may be evicted
	case Complete:
		w.complete = append(w.complete, name)
		w.forgetAfter(name, k, retention)
		if len(w.complete) > p.options.Complete {
			w.forgetLocked(w.complete[0])
		}
		w.unpinLocked(k) // the worker may be evicted
	}
}

// forgetAfter forgets an object after a time, unless a stream sends it by then. The pool's mu is held.
func (w *worker) forgetAfter(name string, k *pinned, retention time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(retention, func() {
		w.set.pool.mu.Lock()
		defer w.set.pool.mu.Unlock()
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

// unpinLocked ends the lease of an object, if it has one.
func (w *worker) unpinLocked(k *pinned) {
	lease := k.lease
	if lease == nil {
		return
	}
	k.lease = nil // the end of the lease may forget the object
	if k.done != nil {
		k.done()
	} else {
		w.interrupted--
	}
	lease.releaseLocked()
}

// Pinned returns a lease of each worker that has an object with that name, the last used first.
func (s *Set) Pinned(name string) []*Lease {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	var leases []*Lease
	for _, w := range s.byKey {
		if w.pinned[name] != nil {
			leases = append(leases, w.leaseLocked(false))
		}
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return b.worker.used.Compare(a.worker.used) })
	return leases
}
