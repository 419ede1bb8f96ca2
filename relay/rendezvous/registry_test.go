package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func newRegistry(t *testing.T, node string, presence Presence, l Limits) (*registry, *fakeClock) {
	t.Helper()
	limits := l.withDefaults()
	clock := newFakeClock()
	r := &registry{presence: presence, limits: limits, clock: clock, node: node, index: newIndex(), logger: slog.New(slog.DiscardHandler),
		pending: map[string][]registration{}}
	ctx, end := context.WithCancelCause(context.Background())
	current := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() { r.follow(ctx, sync.OnceFunc(func() { close(current) })) })
	t.Cleanup(func() {
		end(errClosing)
		following.Wait()
	})
	<-current
	return r, clock
}

func mustRegister(t *testing.T, r *registry, id string) uint64 {
	t.Helper()
	epoch, err := r.register(t.Context(), id, registration{principal: "fleet"})
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func expectRefusal(t *testing.T, err error, code string) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != code {
		t.Errorf("%v, want a refusal with %s", err, code)
	}
}

func TestRegistry_LatestEpochToConnect_Wins(t *testing.T) {
	r, _ := newRegistry(t, "n", NewMemory(), Limits{})
	first, second, third := mustRegister(t, r, "x"), mustRegister(t, r, "x"), mustRegister(t, r, "x")
	if first != 1 || second != 2 || third != 3 {
		t.Fatalf("the epochs are %d, %d and %d", first, second, third)
	}
	if _, err := r.connect(t.Context(), "x", second, ""); err != nil {
		t.Fatal(err)
	}
	for epoch, why := range map[uint64]string{first: "earlier", second: "used", 9: "never given"} {
		_, err := r.connect(t.Context(), "x", epoch, "")
		if expectRefusal(t, err, codeSuperseded); t.Failed() {
			t.Fatalf("one that is %s", why)
		}
	}
	if _, err := r.connect(t.Context(), "x", third, ""); err != nil {
		t.Error(err)
	}
	if err := r.setOnline(t.Context(), "x", second, false); !errors.Is(err, errTakenOver) {
		t.Errorf("the one that was taken over says that it left: %v", err)
	}
	if record, _, _ := r.presence.Get(t.Context(), "x"); !record.Online || record.Connected != third {
		t.Errorf("the record is %+v", record)
	}
}

func TestRegistry_Registrations_Expire(t *testing.T) {
	r, clock := newRegistry(t, "n", NewMemory(), Limits{})
	late, soon := mustRegister(t, r, "x"), mustRegister(t, r, "y")
	clock.advance(DefaultURLLifetime - time.Second)
	if _, err := r.connect(t.Context(), "y", soon, ""); err != nil {
		t.Error(err)
	}
	clock.advance(time.Second)
	_, err := r.connect(t.Context(), "x", late, "")
	expectRefusal(t, err, codeSuperseded)
	if len(r.pending) != 0 {
		t.Errorf("%v is still kept", r.pending)
	}
	for range 2 * DefaultRegistrationsPerID {
		mustRegister(t, r, "x")
	}
	if n := len(r.pending["x"]); n != DefaultRegistrationsPerID {
		t.Errorf("%d registrations of one executor are kept", n)
	}
}

func TestURL_ExpiresAndCannotBeForged(t *testing.T) {
	s, now := Signer{Key: []byte("key")}, time.Unix(1_800_000_000, 0)
	good := ticket{Role: roleHarness, Executor: "x", Principal: "ann", Until: now.Unix() + 1}
	sig := s.Sign(good)
	if got, err := verifyTicket(s, sig, roleHarness, "x", now); err != nil || got != good {
		t.Fatalf("%+v, %v", got, err)
	}
	payload, mac, _ := strings.Cut(sig, ".")
	forged, _, _ := strings.Cut(Signer{Key: []byte("other")}.Sign(ticket{Role: roleHarness, Executor: "x", Principal: "root", Until: now.Unix() + 9}), ".")
	for name, tc := range map[string]struct {
		sig      string
		as       role
		executor string
		after    time.Duration
		want     error
	}{
		"expired":          {sig, roleHarness, "x", time.Second, errTicketExpired},
		"another role":     {sig, roleExecutor, "x", 0, errTicketInvalid},
		"another executor": {sig, roleHarness, "y", 0, errTicketInvalid},
		"another payload":  {forged + "." + mac, roleHarness, "x", 0, errTicketInvalid},
		"no signature":     {payload, roleHarness, "x", 0, errTicketInvalid},
		"empty":            {"", roleHarness, "x", 0, errTicketInvalid},
		"another key":      {Signer{Key: []byte("other")}.Sign(good), roleHarness, "x", 0, errTicketInvalid},
		"another purpose":  {Signer{Key: s.Key, Purpose: "x"}.Sign(good), roleHarness, "x", 0, errTicketInvalid},
		"longer":           {sig + "A", roleHarness, "x", 0, errTicketInvalid},
	} {
		if got, err := verifyTicket(s, tc.sig, tc.as, tc.executor, now.Add(tc.after)); !errors.Is(err, tc.want) || got != (ticket{}) {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, tc.want)
		}
	}
}

// Executors of a killed node are not online, although its last report said so.
func TestRegistry_ExecutorsOfKilledNode_AreOffline(t *testing.T) {
	shared := NewMemory()
	gone, clock := newRegistry(t, "gone", shared, Limits{})
	if _, err := gone.connect(t.Context(), "x", mustRegister(t, gone, "x"), ""); err != nil {
		t.Fatal(err)
	}
	online := func() bool {
		record, _, _ := shared.Get(t.Context(), "x")
		return gone.online(record)
	}
	clock.advance(presenceIntervalsUntilAbsent*DefaultPresenceInterval - time.Second)
	if !online() {
		t.Error("it is given up too soon")
	}
	clock.advance(time.Second)
	if online() {
		t.Error("it is never given up")
	}
	again, _ := newRegistry(t, "gone", shared, Limits{})
	if err := again.resetOwn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if record, _, _ := shared.Get(t.Context(), "x"); record.Online {
		t.Error("the node that was started again takes it for connected")
	}
}

// Two nodes never assign the same epoch to an executor.
func TestRegistry_Epochs_AreUnique(t *testing.T) {
	shared := NewMemory()
	var mu sync.Mutex
	given := map[uint64]string{}
	var registering sync.WaitGroup
	for n := range 2 {
		r, _ := newRegistry(t, fmt.Sprint(n), shared, Limits{})
		registering.Go(func() {
			for range 200 {
				epoch, err := r.register(t.Context(), "x", registration{})
				mu.Lock()
				if other, twice := given[epoch]; err != nil || twice {
					t.Errorf("epoch %d was given by %s, too, %v", epoch, other, err)
				}
				given[epoch] = r.node
				mu.Unlock()
			}
		})
	}
	registering.Wait()
	if len(given) != 400 || given[400] == "" {
		t.Errorf("%d epochs were given", len(given))
	}
}

// Nodes share which executor is connected where: the later one counts, and a
// harness is sent to its node.
func TestHub_NodesSharePresence(t *testing.T) {
	shared, key := NewMemory(), []byte("the same key of all nodes of a hub")
	limits := Limits{PresenceInterval: time.Second} // a node must not be delayed for several
	one := startHub(t, Config{Presence: shared, Node: "one", URLKey: key, Limits: limits})
	two := startHub(t, Config{Presence: shared, Node: "two", URLKey: key, Limits: limits})
	first := one.executor("build-1", "a")
	second := two.executor("build-1", "b")
	first.expectClosed(CodeSuperseded, "superseded")
	expectRefused(t, "ws"+strings.TrimPrefix(one.url, "http")+"/executor/build-1?role=harness", http.Header{"Authorization": {"Bearer ann"}},
		http.StatusMisdirectedRequest, codeExecutorElsewhere)
	status, body := one.ask(http.MethodPost, "/cloud/executor/build-1/connect", "ann", nil)
	url, _ := body["url"].(string)
	if status != http.StatusOK || !strings.HasPrefix(url, "ws"+strings.TrimPrefix(two.url, "http")+"/executor/build-1?") {
		t.Fatalf("connecting gave %d, %v", status, body)
	}
	harness := mustDial(t, url, nil)
	harness.send(data("a", 0, "x"))
	second.expect(data("a", 0, "x"))
	_, body = one.ask(http.MethodGet, "/v1/executors", "ann", nil)
	if list, _ := body["executors"].([]any); len(list) != 1 || list[0].(map[string]any)["connected"] != true {
		t.Errorf("the list of the other node is %v", body)
	}
}
