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

// Record is what the nodes of a hub know of one executor. The zero value is of
// one that never registered.
type Record struct {
	// Executor is its id.
	Executor string `json:"executor"`
	// Epoch is the latest that a registration was given.
	Epoch uint64 `json:"epoch"`
	// Connected is the epoch of the registration that connected last; 0 if none
	// did. One with a lower epoch does not connect any more.
	Connected uint64 `json:"connected"`
	// Online is whether the websocket of that registration is there.
	Online bool `json:"online"`
	// Node names the node that it is at, and URL is where harnesses reach that.
	Node string `json:"node"`
	URL  string `json:"url"`
	// Name, Version and Labels are what the executor says of itself.
	Name    string            `json:"name,omitempty"`
	Version string            `json:"version,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Principal is whose share the record counts for: who connected last, or
	// registered first while nobody did.
	Principal string `json:"principal,omitempty"`
	// LastSeen is when it registered, or its websocket was there last.
	LastSeen time.Time `json:"last_seen"`
}

// ErrChanged means that somebody else has changed the record meanwhile.
var ErrChanged = errors.New("the record was changed meanwhile")

// UnavailableError is a presence that does not keep records now, and will again.
type UnavailableError struct {
	Err error // why
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the presence of executors is not available: %v", e.Err)
}

// Unwrap returns why.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Change is a record as it is from a revision on.
type Change struct {
	Record   Record // has Executor alone if it is deleted
	Revision uint64 // later ones are higher, also those of deletions
	Deleted  bool
}

// Presence keeps the records of executors for all nodes of a hub. A record is
// changed by comparing its revision, so that of two registrations or
// connections one comes first for everybody. Methods may be called concurrently,
// and wait for at most as long as their contexts live.
type Presence interface {
	// Get returns a record and its revision, which is 0 if there is none.
	Get(ctx context.Context, executor string) (Record, uint64, error)
	// Put keeps a record in place of the one with that revision, 0 being none,
	// and returns its own. The error is [ErrChanged] if there is another by now.
	Put(ctx context.Context, record Record, revision uint64) (uint64, error)
	// Delete removes the record with that revision. The error is [ErrChanged] if
	// there is another by now.
	Delete(ctx context.Context, executor string, revision uint64) error
	// Watch calls change for every record there is, earlier changes first, then
	// current once, and from then on change for what nodes change, this one
	// included; of several changes of a record the last may stand for all. It
	// returns when ctx ends, or when it cannot go on, with why. Calls are made one
	// at a time; Watch may hold locks of the presence meanwhile.
	Watch(ctx context.Context, change func(Change), current func()) error
	// Ready returns why records cannot be kept now, an [*UnavailableError], or nil. It
	// does not block.
	Ready() error
	// Close gives up what it holds. Nothing is called after it.
	Close() error
}

// Memory is a [Presence] of one node, which forgets all when it ends.
type Memory struct {
	mu      sync.Mutex
	last    uint64                     // guarded by mu; revision
	records map[string]revised         // guarded by mu
	watches map[*func(Change)]struct{} // guarded by mu, and called with it
}

type revised struct {
	record   Record
	revision uint64
}

// NewMemory returns a presence without records.
func NewMemory() *Memory {
	return &Memory{records: make(map[string]revised), watches: make(map[*func(Change)]struct{})}
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
	m.last++
	m.records[record.Executor] = revised{record: record.clone(), revision: m.last}
	m.report(Change{Record: record.clone(), Revision: m.last})
	return m.last, nil
}

// Delete implements [Presence].
func (m *Memory) Delete(_ context.Context, executor string, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[executor].revision != revision {
		return ErrChanged
	}
	delete(m.records, executor)
	m.last++
	m.report(Change{Record: Record{Executor: executor}, Revision: m.last, Deleted: true})
	return nil
}

// Watch implements [Presence]. Whoever changes a record calls change.
func (m *Memory) Watch(ctx context.Context, change func(Change), current func()) error {
	m.mu.Lock()
	for _, r := range slices.SortedFunc(maps.Values(m.records), func(a, b revised) int { return cmp.Compare(a.revision, b.revision) }) {
		change(Change{Record: r.record.clone(), Revision: r.revision})
	}
	current()
	watch := &change
	m.watches[watch] = struct{}{}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	delete(m.watches, watch)
	m.mu.Unlock()
	return context.Cause(ctx)
}

// report calls every watch. mu is held.
func (m *Memory) report(c Change) {
	for change := range m.watches {
		(*change)(c)
	}
}

// Ready implements [Presence]. Memory is always.
func (m *Memory) Ready() error { return nil }

// Close implements [Presence].
func (m *Memory) Close() error { return nil }

func (r Record) clone() Record {
	r.Labels = maps.Clone(r.Labels)
	return r
}
