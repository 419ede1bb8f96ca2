package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Record is what the nodes of a hub know about one executor. The zero value is an
// executor that never registered.
type Record struct {
	// Executor is its id.
	Executor string `json:"executor"`
	// Epoch is the latest epoch assigned to a registration.
	Epoch uint64 `json:"epoch"`
	// Connected is the epoch of the registration that connected last; 0 if none
	// did. Registrations with lower epochs can no longer connect.
	Connected uint64 `json:"connected"`
	// Online is whether the websocket of that registration is open.
	Online bool `json:"online"`
	// Node is the node of that websocket, and URL is where harnesses reach the
	// node.
	Node string `json:"node"`
	URL  string `json:"url"`
	// Name, Version and Labels are the executor's description of itself.
	Name    string            `json:"name,omitempty"`
	Version string            `json:"version,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Principal is whose limits the record counts against: who connected last or,
	// before that, who registered first.
	Principal string `json:"principal,omitempty"`
	// LastSeen is when it registered, or its websocket was last known to be open.
	LastSeen time.Time `json:"last_seen"`
}

// ErrChanged means that the record was changed concurrently.
var ErrChanged = errors.New("the record was changed concurrently")

// UnavailableError means that the presence temporarily cannot store records.
type UnavailableError struct {
	Err error // the reason
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the presence of executors is not available: %v", e.Err)
}

// Unwrap returns the reason.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Change is a change of a record.
type Change struct {
	Record   Record // only Executor is set if deleted
	Revision uint64 // increases with every change, including deletions
	Deleted  bool
}

// Presence stores the records of executors for all nodes of a hub. Changes are
// compare-and-swap on the revision, so that all nodes agree on the order of
// registrations and connections. Methods may be called concurrently and respect
// the deadlines of their contexts.
type Presence interface {
	// Get returns a record and its revision, which is 0 if there is none.
	Get(ctx context.Context, executor string) (Record, uint64, error)
	// Put replaces the record with that revision, 0 meaning none, and returns the
	// new revision. The error is [ErrChanged] if the revision is not current.
	Put(ctx context.Context, record Record, revision uint64) (uint64, error)
	// Delete removes the record with that revision. The error is [ErrChanged] if
	// the revision is not current.
	Delete(ctx context.Context, executor string, revision uint64) error
	// Watch calls change for every existing record, oldest change first, then
	// caughtUp once, and from then on change for every change by any node,
	// including this one; successive changes of a record may be merged. It
	// returns when ctx ends, or with an error when it cannot continue. Calls are
	// made one at a time, possibly with locks of the presence held.
	Watch(ctx context.Context, change func(Change), caughtUp func()) error
	// Ready returns nil, or an [*UnavailableError] if records cannot be stored
	// now. It does not block.
	Ready() error
	// Close releases resources. No other method is called after it.
	Close() error
}

// Memory is a [Presence] for a single node. Its records are lost when it ends.
type Memory struct {
	mu           sync.Mutex
	lastRevision uint64                     // guarded by mu
	records      map[string]memoryRecord    // guarded by mu
	watches      map[*func(Change)]struct{} // guarded by mu; called with mu held
}

type memoryRecord struct {
	record   Record
	revision uint64
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{records: make(map[string]memoryRecord), watches: make(map[*func(Change)]struct{})}
}

// Get implements [Presence].
func (m *Memory) Get(_ context.Context, executor string) (Record, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[executor]
	return r.record.clone(), r.revision, nil
}

// Put implements [Presence].
func (m *Memory) Put(_ context.Context, record Record, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[record.Executor].revision != revision {
		return 0, ErrChanged
	}
	m.lastRevision++
	m.records[record.Executor] = memoryRecord{record: record.clone(), revision: m.lastRevision}
	m.notify(Change{Record: record.clone(), Revision: m.lastRevision})
	return m.lastRevision, nil
}

// Delete implements [Presence].
func (m *Memory) Delete(_ context.Context, executor string, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[executor].revision != revision {
		return ErrChanged
	}
	delete(m.records, executor)
	m.lastRevision++
	m.notify(Change{Record: Record{Executor: executor}, Revision: m.lastRevision, Deleted: true})
	return nil
}

// Watch implements [Presence]. Later changes are reported by the goroutine that
// makes them.
func (m *Memory) Watch(ctx context.Context, change func(Change), caughtUp func()) error {
	m.mu.Lock()
	for _, r := range slices.SortedFunc(maps.Values(m.records), func(a, b memoryRecord) int { return cmp.Compare(a.revision, b.revision) }) {
		change(Change{Record: r.record.clone(), Revision: r.revision})
	}
	caughtUp()
	watch := &change
	m.watches[watch] = struct{}{}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	delete(m.watches, watch)
	m.mu.Unlock()
	return context.Cause(ctx)
}

// notify calls every watch. mu is held.
func (m *Memory) notify(c Change) {
	for change := range m.watches {
		(*change)(c)
	}
}

// Ready implements [Presence]. It returns nil.
func (m *Memory) Ready() error { return nil }

// Close implements [Presence].
func (m *Memory) Close() error { return nil }

func (r Record) clone() Record {
	r.Labels = maps.Clone(r.Labels)
	return r
}
