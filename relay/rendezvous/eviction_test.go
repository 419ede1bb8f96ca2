package rendezvous

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// away is how long an executor must be absent before its record may be evicted.
const away = DefaultURLLifetime

// registerAs registers an executor for a principal, which must succeed.
func registerAs(t *testing.T, r *registry, principal, id string) uint64 {
	t.Helper()
	epoch, err := r.register(t.Context(), id, registration{principal: principal})
	if err != nil {
		t.Fatalf("%s as %s: %v", principal, id, err)
	}
	return epoch
}

// connectAs connects an executor once for a principal, and disconnects it unless
// it is to stay.
func connectAs(t *testing.T, r *registry, principal, id string, stay bool) {
	t.Helper()
	epoch := registerAs(t, r, principal, id)
	if _, err := r.connect(t.Context(), id, epoch, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.setOnline(t.Context(), id, epoch, stay); err != nil {
		t.Fatal(err)
	}
}

// expectFull checks that a further executor of a principal is rejected because of
// the setting.
func expectFull(t *testing.T, r *registry, principal, id, setting string) {
	t.Helper()
	_, err := r.register(t.Context(), id, registration{principal: principal})
	expectRefusal(t, err, codeExecutorLimit)
	if refusal, ok := err.(*Refusal); ok && (!strings.Contains(refusal.Message, setting+" ") || refusal.RetryAfter <= 0) {
		t.Errorf("the refusal is %q, retry after %v", refusal.Message, refusal.RetryAfter)
	}
}

// expectKnown checks which executors have records, in the index and in the
// presence.
func expectKnown(t *testing.T, r *registry, want ...string) {
	t.Helper()
	var got []string
	for _, record := range r.index.all() {
		got = append(got, record.Executor)
		if _, revision, err := r.presence.Get(t.Context(), record.Executor); err != nil || revision == 0 {
			t.Errorf("%s is in the index and not in the presence: %v", record.Executor, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("known are %v, want %v", got, want)
	}
	if memory, ok := r.presence.(*Memory); ok && len(memory.records) != len(want) {
		t.Errorf("the presence has %d records", len(memory.records))
	}
}

func TestRegister_AtPrincipalLimit_RejectsOnlyThatPrincipal(t *testing.T) {
	r, clock := newRegistry(t, "n", NewMemory(), Limits{Executors: 10, ExecutorsPerPrincipal: 2})
	registerAs(t, r, "ann", "a1")
	clock.advance(time.Second)
	registerAs(t, r, "ann", "a2")
	expectFull(t, r, "ann", "a3", "executors_per_principal")
	registerAs(t, r, "ann", "a1") // a1 already has a record
	registerAs(t, r, "bob", "b1")
	clock.advance(away)
	registerAs(t, r, "ann", "a3") // a2 was registered before a1 registered again
	expectKnown(t, r, "a1", "a3", "b1")
}

func TestRegister_AtTotalLimit_EvictsLongestAbsentOfHeaviestPrincipal(t *testing.T) {
	r, clock := newRegistry(t, "n", NewMemory(), Limits{Executors: 6})
	for _, id := range []string{"a1", "a2", "a3"} {
		connectAs(t, r, "ann", id, false)
		clock.advance(time.Second)
	}
	registerAs(t, r, "ann", "a4") // never connects, and is evicted first
	clock.advance(time.Second)
	connectAs(t, r, "bob", "b1", false)
	connectAs(t, r, "bob", "b2", true)
	expectFull(t, r, "new", "n1", "executors") // none is absent for long enough
	clock.advance(away)
	if err := r.setOnline(t.Context(), "b2", 1, true); err != nil {
		t.Fatal(err)
	}
	registerAs(t, r, "new", "n1")
	expectKnown(t, r, "a1", "a2", "a3", "b1", "b2", "n1")
	registerAs(t, r, "new", "n2")
	expectKnown(t, r, "a2", "a3", "b1", "b2", "n1", "n2")
	// All principals have two, so none loses a record to another's third.
	expectFull(t, r, "new", "n3", "executors")
	// ann, who is absent, replaces one of her own.
	registerAs(t, r, "ann", "a5")
	expectKnown(t, r, "a3", "a5", "b1", "b2", "n1", "n2")
}

func TestRegister_AtTotalLimit_EvictsBeyondRetention(t *testing.T) {
	r, clock := newRegistry(t, "n", NewMemory(), Limits{Executors: 3, ExecutorRetention: time.Hour})
	connectAs(t, r, "ann", "a1", false)
	connectAs(t, r, "bob", "b1", true)
	connectAs(t, r, "bob", "b2", true)
	clock.advance(time.Hour - time.Second)
	seeAll := func() {
		for _, id := range []string{"b1", "b2"} {
			if err := r.setOnline(t.Context(), id, 1, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	seeAll()
	expectFull(t, r, "bob", "b3", "executors")
	clock.advance(time.Second)
	seeAll()
	registerAs(t, r, "bob", "b3")
	expectKnown(t, r, "b1", "b2", "b3")
}

// A record whose executor reconnects during the eviction is kept.
func TestRegister_EvictionOfReconnected_TakesAnother(t *testing.T) {
	shared := NewMemory()
	r, clock := newRegistry(t, "n", shared, Limits{Executors: 2})
	other, _ := newRegistry(t, "other", shared, Limits{Executors: 2})
	connectAs(t, r, "ann", "a1", false)
	clock.advance(time.Second)
	connectAs(t, r, "ann", "a2", false)
	clock.advance(away)
	// The index of r does not receive the change, as if it came at the same
	// moment.
	before := r.index
	r.index = newIndex()
	for _, record := range before.all() {
		r.index.apply(Change{Record: record, Revision: before.records[record.Executor].revision})
	}
	other.clock = r.clock
	connectAs(t, other, "ann", "a1", true)
	registerAs(t, r, "bob", "b1")
	expectKnown(t, r, "a1", "b1")
}

// Changes by all nodes of a hub are counted.
func TestIndex_FollowsOtherNodes(t *testing.T) {
	shared := NewMemory()
	limits := Limits{Executors: 2}
	one, clock := newRegistry(t, "one", shared, limits)
	two, _ := newRegistry(t, "two", shared, limits)
	two.clock = clock
	registerAs(t, one, "ann", "a1")
	registerAs(t, two, "ann", "a2")
	late, _ := newRegistry(t, "late", shared, limits)
	late.clock = clock
	for _, r := range []*registry{one, two, late} {
		expectKnown(t, r, "a1", "a2")
		expectFull(t, r, "bob", "b1", "executors")
	}
	clock.advance(away)
	registerAs(t, late, "bob", "b1")
	for _, r := range []*registry{one, two, late} {
		expectKnown(t, r, "a2", "b1")
	}
}

// Records deleted while a watch was broken are removed from the index.
func TestIndex_AfterBrokenWatch_DropsDeletedRecords(t *testing.T) {
	x := newIndex()
	for i, id := range []string{"a", "b"} {
		x.apply(Change{Record: Record{Executor: id}, Revision: uint64(i + 1)})
	}
	x.restart()
	x.apply(Change{Record: Record{Executor: "b"}, Revision: 2})
	x.apply(Change{Record: Record{Executor: "c"}, Revision: 5})
	x.prune()
	if all := x.all(); len(all) != 2 || all[0].Executor != "b" || all[1].Executor != "c" {
		t.Errorf("the index has %+v", all)
	}
	x.apply(Change{Record: Record{Executor: "c"}, Revision: 7, Deleted: true})
	x.apply(Change{Record: Record{Executor: "b", Name: "old"}, Revision: 1})
	if all := x.all(); len(all) != 1 || all[0].Name != "" || len(x.counts) != 1 || x.counts[""] != 1 {
		t.Errorf("the index has %+v", all)
	}
}

// One principal registers as many executors as it can and disconnects. Others can
// still register, further ones of the principal are rejected with the setting,
// and its records are evicted.
func TestRegister_BesideFloodingPrincipal_Succeeds(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{Executors: 30, ExecutorsPerPrincipal: 20, URLLifetime: 10 * time.Millisecond, PresenceInterval: 10 * time.Millisecond}})
	register := func(token, id string) (int, string) {
		status, body := hub.ask(http.MethodPost, "/cloud/executor/"+id+"/register", token, nil)
		failure, _ := body["error"].(map[string]any)
		message, _ := failure["message"].(string)
		return status, message
	}
	for i := range 200 {
		if status, message := register("heavy", fmt.Sprintf("h%d", i)); status != http.StatusOK &&
			(status != http.StatusTooManyRequests || !strings.Contains(message, "executors_per_principal")) {
			t.Fatalf("registration %d gave %d, %s", i, status, message)
		}
	}
	for i := range 20 {
		eventually(t, "another principal's executor is registered", func() bool {
			status, _ := register("fleet", fmt.Sprintf("f%d", i))
			return status == http.StatusOK
		})
	}
	if n := len(hub.registry.index.all()); n > 30 {
		t.Errorf("%d executors are known", n)
	}
}
