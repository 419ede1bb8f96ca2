package session

import (
	"container/list"
	"sync"

	"github.com/execwire/execwire/internal/process"
)

// budget bounds what may have to be kept of all processes together. A process
// that has not closed is charged what may be retained of its output, its
// snapshots, its arguments and its record; one that has closed, what its log
// really holds instead of what it might, and the ids of its writes.
// The little that a log needs beside its output is not foreseen, see
// eventlog.Limits.MaxHeldBytes, but counted once the process has closed.
//
// When there is no room for a new process, records of those that are at rest give
// way: those of the principal that is charged most, first the ones whose exit was seen,
// then the others, each the ones that have been at rest longest.
//
// No principal locks out the others: of an eighth of the total a principal gets
// something only while it holds nothing that does not give way, or stays within a 64th.
// Its lock is below those of sessions.
type budget struct {
	most int64 // 0: no limit

	mu        sync.Mutex
	charged   int64             // guarded by mu; of all processes
	evictable int64             // guarded by mu; of those at rest
	shares    map[string]*share // guarded by mu; by principal, of those that are charged
}

// share is what one principal is charged.
type share struct {
	held      int64     // what does not give way
	evictable int64     // the rest
	seen      list.List // of *Process, those at rest whose exit was seen, oldest first
	unseen    list.List // the other ones at rest
}

// Parts of a total, as divisors.
const (
	reservedShare = 8  // what is only for principals that hold little
	littleShare   = 64 // what little is
)

// charge is the part of one process.
type charge struct {
	bytes   int64         // guarded by budget.mu
	owner   string        // the principal
	list    *list.List    // guarded by budget.mu; share.seen, share.unseen, or nil: not at rest
	element *list.Element // guarded by budget.mu; in list
}

func newBudget(most int64) *budget {
	return &budget{most: most, shares: make(map[string]*share)}
}

// reserved is what a process is charged until it has closed.
func reserved(spec *process.Spec) int64 {
	limits := spec.Output.WithDefaults()
	streams := 2
	if spec.Terminal != nil {
		streams = 1
	}
	return int64(limits.RetainedBytes+2*streams*limits.SnapshotBytes) + described(spec)
}

// described is what is kept of a process beside its log: how it was started, and
// its record.
func described(spec *process.Spec) int64 {
	const (
		header = 16 // of a string
		record = 4 << 10
	)
	n := record + len(spec.Cwd)
	for _, arg := range spec.Argv {
		n += len(arg) + header
	}
	for name, value := range spec.Labels {
		n += len(name) + len(value) + 2*header
	}
	return int64(n)
}

// reserve charges a new process, and returns those at rest that have to go for
// it, charged no more. It reports false, and has done nothing, if there would
// still be no room.
func (b *budget) reserve(p *Process, bytes int64) (victims []eviction, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most > 0 && b.charged-b.evictable+bytes > available(b.most, b.share(p).held, bytes) {
		b.forget(p)
		return nil, false
	}
	b.add(p, bytes)
	for b.most > 0 && b.charged > b.most {
		victim := b.oldestOfHeaviest()
		victims = append(victims, eviction{victim, victim.charge.bytes})
		b.take(victim)
		b.add(victim, -victim.charge.bytes)
	}
	return victims, true
}

// oldestOfHeaviest returns the process at rest that gives way first; there must be one.
// It looks at all principals. mu is held.
func (b *budget) oldestOfHeaviest() *Process {
	var heaviest *share
	for _, s := range b.shares {
		if s.seen.Len()+s.unseen.Len() > 0 && (heaviest == nil || s.held+s.evictable > heaviest.held+heaviest.evictable) {
			heaviest = s
		}
	}
	first := heaviest.seen.Front()
	if first == nil {
		first = heaviest.unseen.Front()
	}
	return first.Value.(*Process)
}

// available returns what of a total all principals may have together if one of
// them, which holds something already, gets more of it.
func available(total, held, more int64) int64 {
	if held == 0 || held+more <= total/littleShare {
		return total
	}
	return total - total/reservedShare
}

// share is that of the principal of a process. mu is held.
func (b *budget) share(p *Process) *share {
	s := b.shares[p.charge.owner]
	if s == nil {
		s = new(share)
		b.shares[p.charge.owner] = s
	}
	return s
}

// forget drops that share if there is nothing in it. mu is held.
func (b *budget) forget(p *Process) {
	if s := b.shares[p.charge.owner]; s.held == 0 && s.seen.Len() == 0 && s.unseen.Len() == 0 {
		delete(b.shares, p.charge.owner)
	}
}

// add charges a process more, or less. mu is held.
func (b *budget) add(p *Process, more int64) {
	s := b.share(p)
	b.charged += more
	s.held += more
	p.charge.bytes += more
	if p.charge.list != nil {
		b.yield(s, more)
	}
	b.forget(p)
}

// yield has more of what a principal is charged give way, or less. mu is held.
func (b *budget) yield(s *share, more int64) {
	s.held -= more
	s.evictable += more
	b.evictable += more
}

// eviction is a process whose record has to go, and what it was charged.
type eviction struct {
	process *Process
	bytes   int64
}

// resize changes what a process is charged. 0 is for one that is no more.
func (b *budget) resize(p *Process, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes == 0 {
		b.take(p)
	}
	b.add(p, bytes-p.charge.bytes)
}

// rest lets the record of a process give way to others, before or after those whose
// exit nobody has seen.
func (b *budget) rest(p *Process, seen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.share(p)
	to := &s.unseen
	if seen {
		to = &s.seen
	}
	if p.charge.list == to {
		return
	}
	b.take(p)
	p.charge.list, p.charge.element = to, to.PushBack(p)
	b.yield(s, p.charge.bytes)
}

// rouse ends that.
func (b *budget) rouse(p *Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(p)
}

// take takes a process off its list. mu is held.
func (b *budget) take(p *Process) {
	if p.charge.list != nil {
		p.charge.list.Remove(p.charge.element)
		p.charge.list, p.charge.element = nil, nil
		b.yield(b.shares[p.charge.owner], -p.charge.bytes)
	}
}

// makeRoom charges a process that is about to start, for which the oldest records
// of processes at rest are removed as needed: none if that would not be enough,
// which is kind [RetainedOutputFull]. It costs as much as what it removes. No
// session's lock is held.
func (r *Registry) makeRoom(p *Process, bytes int64) error {
	p.charge.owner = p.session.principal
	victims, ok := r.budget.reserve(p, bytes)
	if !ok {
		return &Error{Kind: RetainedOutputFull, Limit: r.cfg.RetainedTotal}
	}
	for _, v := range victims {
		v.process.session.giveWay(v)
	}
	return nil
}

// giveWay removes the record of a victim, or charges it again if somebody has
// taken it up in the meantime.
func (s *Session) giveWay(v eviction) {
	s.lock()
	defer s.unlock()
	p := v.process
	if p.rests() {
		s.remove(p)
	} else if s.processes[p.id] == p { // and nobody has removed it since
		s.registry.budget.resize(p, v.bytes)
	}
}

// evict removes the record of a process, if that is still at rest.
func (s *Session) evict(p *Process) {
	s.lock()
	defer s.unlock()
	if p.rests() {
		s.remove(p)
	}
}
