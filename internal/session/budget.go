package session

import (
	"container/list"
	"sync"

	"github.com/execwire/execwire/internal/process"
)

// budget bounds the memory of all processes together. A process that has not closed
// is charged the maximum of its retained output and snapshots, and its arguments and
// record. A closed one is charged what its log actually holds, and the ids of its
// writes. What a log needs beside its output, see package eventlog, is
// only counted once the process has closed.
//
// When there is no space for a new process, records at rest are evicted: those of the
// principal with the largest charge, first the ones whose exit was seen, then the
// others, each the oldest first. A principal loses none to one that is charged more, so
// that nobody can evict the records of others by filling the total: the start fails
// instead.
//
// No principal can use up the total: an eighth of it is reserved for principals that
// hold nothing unevictable or at most a 64th. The lock comes after those of sessions.
type budget struct {
	mu      sync.Mutex
	limit   int64             // guarded by mu; 0: no limit
	charged int64             // guarded by mu; of all processes
	shares  map[string]*share // guarded by mu; by principal, of those with a charge
}

// share is the charge of one principal.
type share struct {
	held   int64      // what cannot be evicted
	seen   recordList // at rest and kept for ClosedRetention: exit seen, or over a limit
	unseen recordList // the others at rest
}

// recordList is a list of records at rest, which can be evicted.
type recordList struct {
	list.List       // of *Process, oldest first
	bytes     int64 // what they are charged
}

func (s *share) evictable() int64 { return s.seen.bytes + s.unseen.bytes }
func (s *share) total() int64     { return s.held + s.evictable() }

// Parts of the total, as divisors.
const (
	reservedShare = 8  // reserved for principals with a small share
	smallShare    = 64 // the largest small share
)

// charge is the charge of one process.
type charge struct {
	bytes   int64         // guarded by budget.mu
	owner   string        // the principal
	list    *recordList   // guarded by budget.mu; share.seen, share.unseen, or nil: not at rest
	element *list.Element // guarded by budget.mu; in list
}

func newBudget(most int64) *budget {
	return &budget{limit: most, shares: make(map[string]*share)}
}

// setLimit changes the limit for later reservations.
func (b *budget) setLimit(most int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = most
}

// inUse returns the bytes charged for all processes.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charged
}

// reservedBytes is the charge of a process that has not closed.
func reservedBytes(spec *process.Spec) int64 {
	limits := spec.Output.WithDefaults()
	streams := 2
	if spec.Terminal != nil {
		streams = 1
	}
	return int64(limits.RetainedBytes+2*streams*limits.SnapshotBytes) + recordBytes(spec)
}

// recordBytes is the size of a process's record without its log: its arguments and
// fixed overhead.
func recordBytes(spec *process.Spec) int64 {
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

// reserve charges a new process, and returns the records to evict, which are not
// charged any more. It returns false, and has changed nothing, if there would still
// be no space.
func (b *budget) reserve(p *Process, bytes int64) (victims []eviction, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.share(p)
	before := own.total()
	if most := available(b.limit, own.held, bytes); b.limit > 0 && b.charged+bytes > most && b.charged-b.evictableFor(own)+bytes > most {
		b.removeEmptyShare(p)
		return nil, false
	}
	b.add(p, bytes)
	for b.limit > 0 && b.charged > b.limit {
		victim := b.nextVictim(own, before)
		victims = append(victims, eviction{victim, victim.charge.bytes})
		b.unlist(victim)
		b.add(victim, -victim.charge.bytes)
	}
	return victims, true
}

// evictableFor returns how much can be evicted for a principal: what it has itself, and
// of each other one what it is charged more. It looks at all principals. mu is held.
func (b *budget) evictableFor(own *share) int64 {
	n := own.evictable()
	for _, s := range b.shares {
		if s != own {
			n += max(0, min(s.evictable(), s.total()-own.total()))
		}
	}
	return n
}

// nextVictim returns the process at rest to evict next for a principal that was charged
// before bytes; there must be one. It looks at all principals. mu is held.
func (b *budget) nextVictim(own *share, before int64) *Process {
	var heaviest *share
	for _, s := range b.shares {
		if s.seen.Len()+s.unseen.Len() > 0 && (s == own || s.total() > before) && (heaviest == nil || s.total() > heaviest.total()) {
			heaviest = s
		}
	}
	first := heaviest.seen.Front()
	if first == nil {
		first = heaviest.unseen.Front()
	}
	return first.Value.(*Process)
}

// available returns how much of a total all principals together may use, for a
// principal that holds a part of it and requests more.
func available(total, held, more int64) int64 {
	if held == 0 || held+more <= total/smallShare {
		return total
	}
	return total - total/reservedShare
}

// share returns the share of the principal of a process. mu is held.
func (b *budget) share(p *Process) *share {
	s := b.shares[p.charge.owner]
	if s == nil {
		s = new(share)
		b.shares[p.charge.owner] = s
	}
	return s
}

// removeEmptyShare removes that share if it is empty. mu is held.
func (b *budget) removeEmptyShare(p *Process) {
	if s := b.shares[p.charge.owner]; s.held == 0 && s.seen.Len() == 0 && s.unseen.Len() == 0 {
		delete(b.shares, p.charge.owner)
	}
}

// add adds to the charge of a process; more may be negative. mu is held.
func (b *budget) add(p *Process, more int64) {
	b.charged += more
	p.charge.bytes += more
	if p.charge.list != nil {
		p.charge.list.bytes += more
	} else {
		b.share(p).held += more
	}
	b.removeEmptyShare(p)
}

// eviction is a record to evict and its charge.
type eviction struct {
	process *Process
	bytes   int64
}

// resize sets the charge of a process. 0 is for one whose record is removed.
func (b *budget) resize(p *Process, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes == 0 {
		b.unlist(p)
	}
	b.add(p, bytes-p.charge.bytes)
}

// markAtRest makes the record of a process evictable, before or after those whose
// exit was not seen.
func (b *budget) markAtRest(p *Process, seen bool) {
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
	b.unlist(p)
	p.charge.list, p.charge.element = to, to.PushBack(p)
	s.held -= p.charge.bytes
	to.bytes += p.charge.bytes
}

// evictsFirst reports whether the record of a process is at rest and its exit was seen.
func (b *budget) evictsFirst(p *Process) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.charge.list != nil && p.charge.list == &b.shares[p.charge.owner].seen
}

// oldestUnseen returns the record at rest that was not seen for longest, of the
// principal of a process, if the principal has more than most of them, or they are
// charged more than mostBytes, or nil. mostBytes of 0 is no limit.
func (b *budget) oldestUnseen(p *Process, most int, mostBytes int64) *Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.shares[p.charge.owner]; s != nil && (s.unseen.Len() > most || mostBytes > 0 && s.unseen.bytes > mostBytes) {
		return s.unseen.Front().Value.(*Process)
	}
	return nil
}

// markInUse makes it unevictable.
func (b *budget) markInUse(p *Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unlist(p)
}

// unlist removes a process from its list. mu is held.
func (b *budget) unlist(p *Process) {
	if p.charge.list != nil {
		p.charge.list.Remove(p.charge.element)
		p.charge.list.bytes -= p.charge.bytes
		b.share(p).held += p.charge.bytes
		p.charge.list, p.charge.element = nil, nil
	}
}

// reserveOutput charges a process that is about to start, and evicts records at rest
// to make space: none if that would not be enough, which is kind
// [RetainedOutputFull]. It takes time proportional to what it removes. No session's
// lock is held.
func (r *Registry) reserveOutput(p *Process, bytes int64) error {
	p.charge.owner = p.session.principal
	victims, ok := r.budget.reserve(p, bytes)
	if !ok {
		return &Error{Kind: RetainedOutputFull, Limit: r.cfg().RetainedTotal}
	}
	for _, v := range victims {
		v.process.evict(v.bytes)
	}
	return nil
}
