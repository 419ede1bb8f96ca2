package filehelper

import (
	"slices"
	"time"
)

// State is what a helper has of something that was sent to it.
type State uint8

// The states.
const (
	Gone       State = iota // nothing
	Unfinished              // a part, to which more may come
	Complete                // all of it
)

// kept is something that comes to a helper, or came, by its name.
type kept struct {
	streams int         // that bring it
	pins    bool        // it is not complete, and keeps the helper, as a lease does while a stream brings it
	done    func()      // ends what it counts for; not nil while it pins and a stream brings it
	timer   *time.Timer // nil while a stream brings it
}

// Receive notes that something comes to the helper by a name: until [Lease.Received] is called, once, it keeps the
// helper as a lease does. Unless it is there already, unfinished, count counts it, with a lock held: it must neither block
// nor use the pool. Receive fails with the error of count.
func (l *Lease) Receive(name string, count func() (done func(), err error)) error {
	h, p := l.helper, l.helper.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.all[h]; !there {
		return nil // the calls say so
	}
	k := h.kept[name]
	switch {
	case k == nil || !k.pins:
		done, err := count()
		if err != nil {
			return err
		}
		h.forgetLocked(name)
		k = &kept{pins: true, done: done}
		h.take()
		h.lasting++
		if h.kept == nil {
			h.kept = make(map[string]*kept)
		}
		h.kept[name] = k
		p.serveLocked()
	case k.streams == 0:
		done, err := count()
		if err != nil {
			return err
		}
		k.done = done
		h.abandoned--
	}
	k.streams++
	k.stop()
	return nil
}

// Received notes what the helper has of what came, when a stream that brought it has ended: for a while, for which what
// is unfinished keeps the helper until that has to give way to another, and what is complete lets it be found.
func (l *Lease) Received(name string, what State, while time.Duration) {
	h, p := l.helper, l.helper.set.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	k := h.kept[name]
	if k == nil { // the helper has ended
		return
	}
	if k.streams--; k.streams > 0 {
		return
	}
	switch what {
	case Gone:
		h.forgetLocked(name)
		return
	case Complete:
		h.unpinLocked(k)
		h.complete = append(h.complete, name)
		if len(h.complete) > p.options.Complete {
			h.forgetLocked(h.complete[0])
		}
	}
	if h.kept[name] != k {
		return
	}
	if k.pins {
		k.done()
		k.done = nil
		h.abandoned++
		h.used = time.Now()
		p.serveLocked()
		if h.kept[name] != k { // the helper gave way
			return
		}
	}
	var timer *time.Timer
	timer = time.AfterFunc(while, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if k.timer == timer { // otherwise it was stopped
			h.forgetLocked(name)
		}
	})
	k.timer = timer
}

func (k *kept) stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// forgetLocked forgets what there may be by a name.
func (h *helper) forgetLocked(name string) {
	k := h.kept[name]
	if k == nil {
		return
	}
	delete(h.kept, name)
	h.complete = slices.DeleteFunc(h.complete, func(other string) bool { return other == name })
	k.stop()
	h.unpinLocked(k)
}

// unpinLocked lets the helper give way.
func (h *helper) unpinLocked(k *kept) {
	if k.pins {
		k.pins = false
		if k.done != nil {
			k.done()
		} else {
			h.abandoned--
		}
		h.lasting--
		h.leaveLocked()
	}
}

// Having returns a lease of each helper that has something by a name, the last used first.
func (s *Set) Having(name string) []*Lease {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	var leases []*Lease
	for _, h := range s.byKey {
		if h.kept[name] != nil {
			h.take()
			leases = append(leases, &Lease{helper: h})
		}
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return b.helper.used.Compare(a.helper.used) })
	return leases
}
