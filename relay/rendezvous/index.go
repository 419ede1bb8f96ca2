package rendezvous

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"
)

// index is a copy in memory of all records of a presence, so that counting and
// listing them asks nobody. It follows the presence, and a change that this node
// makes is in it at once. It may be used concurrently.
type index struct {
	mu         sync.Mutex
	records    map[string]*indexed // guarded by mu; by executor
	principals map[string]*holding // guarded by mu; by name, of those with records
	generation uint64              // guarded by mu; of the watch that it follows
}

// indexed is one record. Revision 0 is a place that a registration has taken and
// not filled yet.
type indexed struct {
	record     Record
	revision   uint64
	generation uint64
	holder     *holding
	order      *list.List // the one of holder that it is in
	element    *list.Element
}

// holding is the records of one principal, those that changed last at the back: a
// connected executor's record changes every presence interval, so that the
// executors at the front are away.
type holding struct {
	principal     string
	count         int
	unused, known list.List // of executors that never connected, and of others
}

func newIndex() *index {
	return &index{records: make(map[string]*indexed), principals: make(map[string]*holding)}
}

// apply makes the index have a change, unless it has a later one already.
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

// add puts a record in. mu is held.
func (x *index) add(record Record, revision uint64) {
	h := x.principals[record.Principal]
	if h == nil {
		h = &holding{principal: record.Principal}
		x.principals[record.Principal] = h
	}
	one := &indexed{record: record, revision: revision, generation: x.generation, holder: h, order: &h.known}
	if record.Connected == 0 {
		one.order = &h.unused
	}
	one.element = one.order.PushBack(one)
	h.count++
	x.records[record.Executor] = one
}

// remove takes a record out. mu is held.
func (x *index) remove(one *indexed) {
	one.order.Remove(one.element)
	if one.holder.count--; one.holder.count == 0 {
		delete(x.principals, one.holder.principal)
	}
	delete(x.records, one.record.Executor)
}

// restart begins to follow another watch: what that does not have is removed by
// current.
func (x *index) restart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.generation++
}

// current removes what was not in the watch that is followed.
func (x *index) current() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, one := range x.records {
		if one.generation != x.generation && one.revision != 0 {
			x.remove(one)
		}
	}
}

// release gives back the place of a registration that did not fill it.
func (x *index) release(executor string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if one := x.records[executor]; one != nil && one.revision == 0 {
		x.remove(one)
	}
}

// all returns all records, by executor.
func (x *index) all() []Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	records := make([]Record, 0, len(x.records))
	for _, one := range x.records {
		if one.revision != 0 {
			records = append(records, one.record)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Executor, b.Executor) })
	return records
}

// admit gives the record of an executor a place, which belongs to principal. If
// there is none it takes that of evicted, which is to be deleted; nil is nobody's.
// The error is a [*Refusal] if none gives way.
func (x *index) admit(executor, principal string, limits Limits, now time.Time) (evicted *indexed, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.records[executor] != nil {
		return nil, nil
	}
	e := eviction{limits: limits, now: now, own: x.principals[principal]}
	if e.own == nil {
		e.own = &holding{principal: principal}
	}
	switch {
	case e.own.count >= limits.ExecutorsPerPrincipal:
		if e.consider(e.own); e.chosen == nil {
			return nil, limitReached(codeExecutorLimit, "executors_per_principal", limits.ExecutorsPerPrincipal, e.retry())
		}
	case len(x.records) >= limits.Executors:
		for _, h := range x.principals {
			e.consider(h)
		}
		if e.chosen == nil {
			return nil, limitReached(codeExecutorLimit, "executors", limits.Executors, e.retry())
		}
	}
	if e.chosen != nil {
		x.remove(e.chosen)
	}
	x.add(Record{Executor: executor, Principal: principal, LastSeen: now}, 0)
	return e.chosen, nil
}
