package session

import (
	"fmt"
	"testing"

	"github.com/execwire/execwire/internal/process"
)

// newCharged returns a process that is charged.
func newCharged(t *testing.T, b *budget, bytes int64) *Process {
	t.Helper()
	p := &Process{}
	if victims, ok := b.reserve(p, bytes); !ok || len(victims) > 0 {
		t.Fatalf("there is no room for %d bytes beside %d", bytes, b.charged)
	}
	return p
}

func TestBudgetTakesTheOldestAndNoMoreThanItMust(t *testing.T) {
	b := newBudget(100)
	var old []*Process
	for range 4 {
		p := newCharged(t, b, 20)
		b.markAtRest(p, true)
		old = append(old, p)
	}
	b.markInUse(old[0]) // somebody owns it again
	if _, ok := b.reserve(&Process{}, 81); ok {
		t.Error("there is room for 81 bytes beside 20 that must stay")
	}
	if b.charged != 80 || b.shares[""].seen.Len() != 3 {
		t.Errorf("a refusal left %d bytes charged, %d at rest", b.charged, b.shares[""].seen.Len())
	}
	victims, ok := b.reserve(&Process{}, 50)
	if !ok || len(victims) != 2 || victims[0].process != old[1] || victims[1].process != old[2] {
		t.Fatalf("the victims are %v, %v", victims, ok)
	}
	if b.charged != 90 || b.evictable != 20 {
		t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable)
	}
}

// A victim that somebody takes up before it is removed is charged again, also if
// it has come to rest again by then.
func TestEviction_VictimInUse_IsChargedAgain(t *testing.T) {
	for _, rests := range []bool{false, true} {
		b := newBudget(100)
		p := newCharged(t, b, 80)
		b.markAtRest(p, true)
		victims, ok := b.reserve(&Process{}, 60)
		if !ok || len(victims) != 1 {
			t.Fatalf("the victims are %v, %v", victims, ok)
		}
		if rests {
			b.markAtRest(p, true)
		}
		b.resize(p, victims[0].bytes)
		evictable := int64(0)
		if rests {
			evictable = 80
		}
		if b.charged != 140 || b.evictable != evictable {
			t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable)
		}
		b.resize(p, 0)
		if b.charged != 60 || b.evictable != 0 || b.shares[""].seen.Len() != 0 {
			t.Errorf("%d bytes are charged once it is gone, %d evictable", b.charged, b.evictable)
		}
	}
}

// One that was taken up, and whose session has forgotten it since, is no more.
func TestEviction_RemovedVictim_IsNotChargedAgain(t *testing.T) {
	r := NewRegistry(nil, Config{RetainedTotal: 100})
	s := r.makeSession("s", "tester")
	p := newCharged(t, r.budget, 80)
	p.id, p.session, p.closed, s.processes["p"] = "p", s, true, p
	r.budget.markAtRest(p, true)
	victims, ok := r.budget.reserve(&Process{}, 60)
	if !ok || len(victims) != 1 {
		t.Fatalf("the victims are %v, %v", victims, ok)
	}
	p.owner.state = streamOwned
	r.budget.markInUse(p)
	s.forgetAll()
	p.evict(victims[0].bytes)
	if charged := r.Charged(); charged != 60 {
		t.Errorf("%d bytes are charged, want those of one process", charged)
	}
}

// What a caller keeps with a process is kept like what it was started with.
func TestLabelsAreCharged(t *testing.T) {
	plain, labelled := &process.Spec{}, &process.Spec{Labels: map[string]string{"name": "value"}}
	if more := recordBytes(labelled) - recordBytes(plain); more < int64(len("name")+len("value")) {
		t.Errorf("a label is charged with %d bytes", more)
	}
}

// A principal that takes all it can get does not keep another one, which has little,
// from starting a process, and what it gave back counts no more.
func TestBudget_FullOfOnePrincipal_HasSpaceForOthers(t *testing.T) {
	const each = 10
	b := newBudget(64 * each)
	var heavy []*Process
	for {
		p := &Process{charge: charge{owner: "heavy"}}
		if _, ok := b.reserve(p, each); !ok {
			break
		}
		heavy = append(heavy, p)
	}
	if len(heavy) != 56 {
		t.Errorf("one principal has %d processes", len(heavy))
	}
	for _, owner := range []string{"a", "b"} {
		if _, ok := b.reserve(&Process{charge: charge{owner: owner}}, each); !ok {
			t.Errorf("%s cannot start a process", owner)
		}
		if _, ok := b.reserve(&Process{charge: charge{owner: owner}}, each); ok {
			t.Errorf("%s has more than little of what is reserved", owner)
		}
	}
	for _, p := range heavy {
		b.markAtRest(p, true)
		b.markInUse(p)
		b.resize(p, 5)
		b.resize(p, 0)
	}
	if b.charged != 2*each || len(b.shares) != 2 || b.shares["a"].held != each {
		t.Errorf("%d bytes are charged, of %d principals", b.charged, len(b.shares))
	}
}

// A principal that uses the budget up evicts its own records, and not the older ones of
// principals that have less.
func TestBudget_FullOfOnePrincipal_EvictsItsRecordsFirst(t *testing.T) {
	b := newBudget(100)
	newOf := func(owner string, bytes int64, seen bool) *Process {
		p := &Process{charge: charge{owner: owner}}
		if victims, ok := b.reserve(p, bytes); !ok || len(victims) > 0 {
			t.Fatalf("there is no room for %d bytes beside %d", bytes, b.charged)
		}
		b.markAtRest(p, seen)
		return p
	}
	light := newOf("light", 10, true)
	unseen, seen := newOf("heavy", 40, false), newOf("heavy", 40, true)
	victims, ok := b.reserve(&Process{charge: charge{owner: "heavy"}}, 75)
	if !ok || len(victims) != 2 || victims[0].process != seen || victims[1].process != unseen {
		t.Fatalf("the victims are %v, %v", victims, ok)
	}
	if b.charged != 85 || b.evictable != 10 || light.charge.list == nil {
		t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable)
	}
	// One that has nothing evicts the one that has most, of those that have records.
	if victims, ok := b.reserve(&Process{charge: charge{owner: "new"}}, 20); !ok || len(victims) != 1 || victims[0].process != light {
		t.Errorf("the victims are %v, %v", victims, ok)
	}
}

// When many principals have taken what they can, the first process of others fits into
// the eighth that those cannot have, for as many as docs/reliability.md has it.
func TestBudget_FullOfManyPrincipals_HasSpaceForTheFirstProcessOfOthers(t *testing.T) {
	const heavy = 20
	each := reservedBytes(&process.Spec{})
	for total, want := range map[int64]int{2 << 30: 204, 1 << 30: 102} {
		b := newBudget(total)
		for turn, refused := 0, 0; refused < heavy; turn++ { // in turns, until none gets more
			refused++
			if _, ok := b.reserve(&Process{charge: charge{owner: fmt.Sprint("heavy-", turn%heavy)}}, each); ok {
				refused = 0
			}
		}
		started := 0
		for started <= want {
			if _, ok := b.reserve(&Process{charge: charge{owner: fmt.Sprint("other-", started)}}, each); !ok {
				break
			}
			started++
		}
		if started < want {
			t.Errorf("of %d bytes %d other principals get a process, want %d", total, started, want)
		}
	}
}
