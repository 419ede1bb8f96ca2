package session

import (
	"fmt"
	"testing"

	"github.com/execwire/execwire/internal/process"
)

// newCharged returns a process that the budget has charged.
func newCharged(t *testing.T, b *budget, bytes int64) *Process {
	t.Helper()
	p := &Process{}
	if victims, ok := b.reserve(p, bytes); !ok || len(victims) > 0 {
		t.Fatalf("%d bytes do not fit beside %d", bytes, b.charged)
	}
	return p
}

// evictable returns what all principals have at rest.
func (b *budget) evictable() (n int64) {
	for _, s := range b.shares {
		n += s.evictable()
	}
	return n
}

func TestBudget_EvictsOldestAndNoMoreThanNeeded(t *testing.T) {
	b := newBudget(100)
	var old []*Process
	for range 4 {
		p := newCharged(t, b, 20)
		b.markAtRest(p, true)
		old = append(old, p)
	}
	b.markInUse(old[0]) // it has an owner again
	if _, ok := b.reserve(&Process{}, 81); ok {
		t.Error("81 bytes fit beside 20 that cannot be evicted")
	}
	if b.charged != 80 || b.shares[""].seen.Len() != 3 {
		t.Errorf("after the rejection %d bytes are charged, %d records are closed", b.charged, b.shares[""].seen.Len())
	}
	victims, ok := b.reserve(&Process{}, 50)
	if !ok || len(victims) != 2 || victims[0].process != old[1] || victims[1].process != old[2] {
		t.Fatalf("the victims are %v, %v", victims, ok)
	}
	if b.charged != 90 || b.evictable() != 20 {
		t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable())
	}
}

// A victim that gets an owner before it is removed is charged again, also if it has been
// released since.
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
		if b.charged != 140 || b.evictable() != evictable {
			t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable())
		}
		b.resize(p, 0)
		if b.charged != 60 || b.evictable() != 0 || b.shares[""].seen.Len() != 0 {
			t.Errorf("after the removal %d bytes are charged, %d evictable", b.charged, b.evictable())
		}
	}
}

// A victim that got an owner, and that its session has removed since, is not charged.
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
	if charged := r.Totals().RetainedBytes; charged != 60 {
		t.Errorf("%d bytes are charged, want those of one process", charged)
	}
}

// Labels are charged like the arguments of a process.
func TestBudget_ChargesLabels(t *testing.T) {
	plain, labelled := &process.Spec{}, &process.Spec{Labels: map[string]string{"name": "value"}}
	if more := recordBytes(labelled) - recordBytes(plain); more < int64(len("name")+len("value")) {
		t.Errorf("a label is charged with %d bytes", more)
	}
}

// A principal that fills its share of the budget does not prevent another one from starting
// a process, and what it releases no longer counts.
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
			t.Errorf("%s gets more than one process from the reserve", owner)
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

// For a principal that fills the budget its own records are evicted, not older ones of
// principals that use less.
func TestBudget_FullOfOnePrincipal_EvictsItsRecordsFirst(t *testing.T) {
	b := newBudget(100)
	newOf := func(owner string, bytes int64, seen bool) *Process {
		p := &Process{charge: charge{owner: owner}}
		if victims, ok := b.reserve(p, bytes); !ok || len(victims) > 0 {
			t.Fatalf("%d bytes do not fit beside %d", bytes, b.charged)
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
	if b.charged != 85 || b.evictable() != 10 || light.charge.list == nil {
		t.Errorf("%d bytes are charged, %d of them evictable", b.charged, b.evictable())
	}
	// For a principal without records, those of the principal that uses most are evicted.
	if victims, ok := b.reserve(&Process{charge: charge{owner: "new"}}, 20); !ok || len(victims) != 1 || victims[0].process != light {
		t.Errorf("the victims are %v, %v", victims, ok)
	}
}

// A principal loses no records to one that has more, however much of the total that takes:
// the start of the other fails. It does to one that has less.
func TestBudget_RecordsOfOthers_AreSafeFromWhoHasMore(t *testing.T) {
	const each = 10
	b := newBudget(64 * each)
	charge := func(owner string, bytes int64) (*Process, []eviction, bool) {
		p := &Process{charge: charge{owner: owner}}
		victims, ok := b.reserve(p, bytes)
		return p, victims, ok
	}
	for range 5 {
		p, _, _ := charge("light", each)
		b.markAtRest(p, true)
	}
	started := 0
	for {
		_, victims, ok := charge("greedy", each)
		if !ok {
			break
		}
		if len(victims) > 0 {
			t.Fatalf("the start %d of the greedy principal evicts %v", started, victims)
		}
		started++
	}
	if light := b.shares["light"]; light.seen.Len() != 5 || light.total() != 5*each || started != 51 {
		t.Errorf("the other principal has %d of 5 records, and %d bytes, after %d starts", light.seen.Len(), light.total(), started)
	}
	// Of a principal that has more, records go, but not below what the other has.
	var heavy []*Process
	for range 8 {
		p, _, ok := charge("heavy", each)
		if !ok {
			break
		}
		b.markAtRest(p, false)
		heavy = append(heavy, p)
	}
	if len(heavy) == 0 {
		t.Fatal("a principal without processes cannot start one")
	}
	if _, victims, ok := charge("new", 3*each); !ok {
		t.Errorf("a principal without processes cannot start one beside %d records", b.evictable()/each)
	} else if len(victims) == 0 {
		t.Error("it evicts nothing")
	}
}

// Records whose exit was not seen are limited in bytes, for each principal.
func TestBudget_UnseenBytes_AreThoseOfEachPrincipal(t *testing.T) {
	b := newBudget(0)
	newOf := func(owner string) *Process {
		p := &Process{charge: charge{owner: owner}}
		b.reserve(p, 10)
		b.markAtRest(p, false)
		return p
	}
	first := newOf("a")
	newOf("b")
	if p := b.oldestUnseen(first, 9, 10); p != nil {
		t.Errorf("%v is too much within the limit", p)
	}
	b.resize(first, 11)
	if p := b.oldestUnseen(first, 9, 10); p != first {
		t.Errorf("the oldest beyond the limit is %v", p)
	}
	if p := b.oldestUnseen(first, 9, 0); p != nil {
		t.Errorf("without a limit %v is too much", p)
	}
	second := newOf("a")
	b.markAtRest(first, true)
	if p := b.oldestUnseen(second, 9, 10); p != nil {
		t.Errorf("a record that counts as seen still counts: %v", p)
	}
}

// When many principals have filled their shares, the first process of others fits into the
// reserved eighth, for as many principals as docs/reliability.md states.
func TestBudget_FullOfManyPrincipals_HasSpaceForOthersFirstProcess(t *testing.T) {
	const heavy = 20
	each := reservedBytes(&process.Spec{})
	for total, want := range map[int64]int{2 << 30: 204, 1 << 30: 102} {
		b := newBudget(total)
		for turn, refused := 0, 0; refused < heavy; turn++ { // in turns, until no principal gets more
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
