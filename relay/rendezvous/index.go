package rendezvous

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// index is an in-memory copy of all records of a presence, for counting and
// listing without requests. It follows the presence; changes by this node are
// applied at once. It may be used concurrently.
type index struct {
	mu         sync.Mutex
	records    map[string]*entry // guarded by mu; by executor
	counts     map[string]int    // guarded by mu; number of records by principal
	generation uint64            // guarded by mu; incremented with each watch
}

// entry is one record. Revision 0 reserves the record for a registration in
// progress.
type entry struct {
	record     Record
	revision   uint64
	generation uint64
}

func newIndex() *index {
	return &index{records: make(map[string]*entry), counts: make(map[string]int)}
}

// apply applies a change, unless the index has a later one.
func (x *index) apply(c Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.records[c.Record.Executor]
	if before != nil {
		if before.revision >= c.Revision {
			before.generation = x.generation
			return
		}
		x.remove(before)
	}
	if !c.Deleted {
		x.add(c.Record, c.Revision)
	}
}

// add adds a record. mu is held.
func (x *index) add(record Record, revision uint64) {
	x.records[record.Executor] = &entry{record: record, revision: revision, generation: x.generation}
	x.counts[record.Principal]++
}

// remove removes a record. mu is held.
func (x *index) remove(e *entry) {
	delete(x.records, e.record.Executor)
	if x.counts[e.record.Principal]--; x.counts[e.record.Principal] == 0 {
		delete(x.counts, e.record.Principal)
	}
}

// restart starts a new watch; prune removes the records that are not in it.
func (x *index) restart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.generation++
}

// prune removes the records that the current watch did not report.
func (x *index) prune() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.records {
		if e.generation != x.generation && e.revision != 0 {
			x.remove(e)
		}
	}
}

// release releases the reservation of a registration that failed.
func (x *index) release(executor string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.records[executor]; e != nil && e.revision == 0 {
		x.remove(e)
	}
}

// all returns all records, sorted by executor.
func (x *index) all() []Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	records := make([]Record, 0, len(x.records))
	for _, e := range x.records {
		if e.revision != 0 {
			records = append(records, e.record)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Executor, b.Executor) })
	return records
}

// admit reserves a record for an executor of principal. At a limit it removes
// another entry, evicted, which the caller must delete; evicted is nil if there
// was space. The error is a [*Refusal] if no record may be evicted.
func (x *index) admit(executor, principal string, limits Limits, now time.Time) (evicted *entry, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.records[executor] != nil {
		return nil, nil
	}
	e := eviction{limits: limits, now: now, principal: principal, counts: x.counts}
	switch {
	case x.counts[principal] >= limits.ExecutorsPerPrincipal:
		e.ownOnly = true
		if evicted = e.choose(x.records); evicted == nil {
			return nil, LimitReached(codeExecutorLimit, "executors_per_principal", limits.ExecutorsPerPrincipal, e.retryIn)
		}
	case len(x.records) >= limits.Executors:
		if evicted = e.choose(x.records); evicted == nil {
			return nil, LimitReached(codeExecutorLimit, "executors", limits.Executors, e.retryIn)
		}
	}
	if evicted != nil {
		x.remove(evicted)
	}
	x.add(Record{Executor: executor, Principal: principal, LastSeen: now}, 0)
	return evicted, nil
}
