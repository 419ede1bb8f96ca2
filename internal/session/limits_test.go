package session_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testrace"
)

// wantLimit checks the kind of an error and the bound that it names.
func wantLimit(t *testing.T, err error, kind session.Kind, limit int64) {
	t.Helper()
	wantKind(t, err, kind)
	var typed *session.Error
	if errors.As(err, &typed); typed.Limit != limit || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
		t.Errorf("%q names %d, want %d", err, typed.Limit, limit)
	}
}

func TestProcessLimit_PerSession(t *testing.T) {
	f := newFixture(t, session.Config{ProcessesPerSession: 2, ClosedRetention: time.Hour})
	p := f.start(t, "p", "/bin/cat")
	f.start(t, "q", "/bin/cat")
	_, _, err := f.Start(f.ctx, "r", session.Digest{1}, spec("/bin/true"), session.StartOptions{})
	wantLimit(t, err, session.TooManyProcesses, 2)
	if _, created, err := f.Start(f.ctx, "q", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil || created {
		t.Errorf("a repeated start counts again: %v", err)
	}
	other, err := f.registry.Open("other", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Start(f.ctx, "r", session.Digest{1}, spec("/bin/true"), session.StartOptions{}); err != nil {
		t.Errorf("the processes of another session count: %v", err)
	}
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	until(t, f, "a closed process no longer counts", func() bool {
		_, _, err := f.Start(f.ctx, "r", session.Digest{1}, spec("/bin/true"), session.StartOptions{})
		return err == nil
	})
	for range 5 { // starts that fail do not count either
		if _, _, err := f.Start(f.ctx, "bad", session.Digest{1}, spec("/no/such"), session.StartOptions{}); err == nil {
			t.Error("started a program that does not exist")
		}
		<-must(t)(f.Session.Process("r")).Closed()
	}
}

// A client that has read the end of a process can start another at once.
func TestProcessLimit_ClosedProcess_DoesNotCount(t *testing.T) {
	f := newFixture(t, session.Config{ProcessesPerSession: 1})
	for i := range 300 {
		p, _, err := f.Start(f.ctx, fmt.Sprint("p", i), session.Digest{1}, spec("/bin/true"), session.StartOptions{})
		if err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		for !p.Log().Stats().Closed {
			runtime.Gosched()
		}
	}
}

// An attachment can lower the limits of its session, and raise them again.
func TestProcessLimit_LoweredByAttachment(t *testing.T) {
	f := newFixture(t, session.Config{ProcessesPerSession: 3, ClosedRetention: time.Hour, DefaultGrace: time.Hour, MaxGrace: time.Hour})
	c := f.newClient(t, session.AttachRequest{MaxProcesses: 2})
	s := c.a.Session()
	start := func(id string) error {
		_, _, err := s.Start(f.ctx, id, session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
		return err
	}
	for _, id := range []string{"p", "q"} {
		if err := start(id); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit(t, start("r"), session.TooManyProcessesAttached, 2)
	c.a.Lost()
	wantLimit(t, start("r"), session.TooManyProcessesAttached, 2)
	c.attach(session.AttachRequest{MaxProcesses: 1})
	wantLimit(t, start("r"), session.TooManyProcessesAttached, 1)
	c.a.Lost()
	c.attach(session.AttachRequest{MaxProcesses: 1000})
	if err := start("r"); err != nil {
		t.Error(err)
	}
	wantLimit(t, start("s"), session.TooManyProcesses, 3)
}

func must(t *testing.T) func(*session.Process, error) *session.Process {
	return func(p *session.Process, err error) *session.Process {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func TestSessionLimit_PerPrincipal(t *testing.T) {
	f := newFixture(t, session.Config{SessionsPerPrincipal: 3})
	var clients []*client
	for range 3 {
		clients = append(clients, f.newClient(t, session.AttachRequest{}))
	}
	_, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{})
	wantLimit(t, err, session.TooManySessions, 3)
	other, err := f.registry.Attach(f.ctx, "other", session.AttachRequest{Grace: within(0)})
	if err != nil {
		t.Fatalf("another principal's sessions count: %v", err)
	}
	other.Lost()
	if err := f.registry.CloseSession(f.ctx, "tester", clients[0].id); err != nil {
		t.Fatal(err)
	}
	clients[0].a.Lost()
	clients[0] = f.newClient(t, session.AttachRequest{})
	for _, c := range clients {
		c.a.Lost()
	}
}

// Principals that a gateway names share one limit.
func TestSessionLimit_AllPrincipals(t *testing.T) {
	f := newFixture(t, session.Config{SessionsPerPrincipal: 2, SessionsTotal: 3})
	var held []*session.Attachment
	attach := func(principal string) error {
		a, err := f.registry.Attach(f.ctx, principal, session.AttachRequest{Grace: within(0)})
		if err == nil {
			held = append(held, a)
		}
		return err
	}
	for _, principal := range []string{"a", "b", "c"} {
		if err := attach(principal); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit(t, attach("d"), session.TooManySessionsInAll, 3)
	held[0].Lost() // without a grace period the session ends
	until(t, f, "an ended session no longer counts", func() bool { return attach("d") == nil })
	for _, a := range held {
		a.Lost()
	}
}

// One process with the default limits is charged a little more than 1.25 MiB.
const charged = 1<<20 + 4*64<<10

func TestRetainedTotal_IsBounded(t *testing.T) {
	const total = 3*charged + charged/2
	f := newFixture(t, session.Config{RetainedTotal: total, ClosedRetention: time.Hour})
	for i := range 3 {
		f.start(t, fmt.Sprint("running", i), "/bin/cat")
	}
	_, _, err := f.Start(f.ctx, "one more", session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
	wantLimit(t, err, session.RetainedOutputFull, total)
	for i := range 2 {
		p := must(t)(f.Session.Process(fmt.Sprint("running", i)))
		if err := p.CloseStdin(f.ctx); err != nil {
			t.Fatal(err)
		}
		until(t, f, "a closed process is charged for what it retains", func() bool {
			_, _, err := f.Start(f.ctx, fmt.Sprint("later", i), session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
			return err == nil
		})
		must(t)(f.Session.Process(p.ID())) // it was not evicted
	}
}

func TestRetainedTotal_Full_EvictsOldestClosedRecords(t *testing.T) {
	f := newFixture(t, session.Config{RetainedTotal: 4 * charged, ClosedRetention: time.Hour})
	other, err := f.registry.Open("other", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	// Each retains half a MiB of output.
	closed := func(s *session.Session, id string) *session.Process {
		t.Helper()
		p, _, err := s.Start(f.ctx, id, session.Digest{1}, flood(512<<10), session.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Closed()
		f.registry.Drained(p)
		return p
	}
	const old = 7 // more than the session of the test ever has
	for i := range old {
		closed(other, fmt.Sprint("old", i))
	}
	held := closed(f.Session, "held")
	o, err := held.Own(f.ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Detach()
	f.start(t, "p", "/bin/cat")
	left, _ := other.Processes("", 10)
	for i, p := range left {
		if want := fmt.Sprint("old", old-len(left)+i); p.ID() != want {
			t.Errorf("%s remains, want %s", p.ID(), want)
		}
	}
	if len(left) == 0 || len(left) == old {
		t.Errorf("%d of %d records remain", len(left), old)
	}
	must(t)(f.Session.Process("held")) // it has an owner
	if _, _, err := f.Start(f.ctx, "r", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil {
		wantKind(t, err, session.RetainedOutputFull)
		if again, _ := other.Processes("", 10); len(again) != len(left) {
			t.Error("a rejected start evicted a record")
		}
	}
}

// A start that fails for another reason must not evict records.
func TestStart_Rejected_EvictsNothing(t *testing.T) {
	f := newFixture(t, session.Config{RetainedTotal: 2 * charged, ProcessesPerSession: 1, ClosedRetention: time.Hour})
	old, _, err := f.Start(f.ctx, "old", session.Digest{1}, flood(900<<10), session.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.registry.Drained(old)
	f.start(t, "p", "/bin/cat")
	for _, kind := range []session.Kind{session.TooManyProcesses, session.Draining} {
		s, err := f.registry.Open(map[session.Kind]string{session.TooManyProcesses: "tester", session.Draining: "other"}[kind], "", session.AccessOwner)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Start(f.ctx, "q", session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
		wantKind(t, err, kind)
		must(t)(f.Session.Process("old"))
		f.registry.Drain()
	}
}

// After many concurrent starts with a small budget nothing remains charged.
func TestBudget_AfterAllProcesses_IsZero(t *testing.T) {
	f := newFixture(t, session.Config{RetainedTotal: 8 * charged, ClosedRetention: time.Hour})
	var refused atomic.Int32
	for round := range 3 {
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				for n := range 5 {
					p, _, err := f.Start(f.ctx, fmt.Sprint(round, i, n), session.Digest{1}, spec("/bin/true"), session.StartOptions{})
					if err != nil {
						refused.Add(1)
						continue
					}
					<-p.Closed()
				}
			})
		}
		group.Wait()
	}
	if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
		t.Fatal(err)
	}
	if n := f.registry.Totals().RetainedBytes; n != 0 {
		t.Errorf("%d bytes are still charged; %d starts were rejected", n, refused.Load())
	}
}

// The charge of processes without output is about their real cost, including the ids of
// their writes.
func TestBudget_ChargeMatchesCost(t *testing.T) {
	testrace.MeasuresMemory(t)
	f := newFixture(t, session.Config{ClosedRetention: time.Hour})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, tt := range map[string]struct{ processes, writes int }{"silent": {processes: 300}, "written to": {3, session.MaxWriteIDs}} {
		for warm := range 2 {
			before, charged := heap(), f.registry.Totals().RetainedBytes
			for i := range tt.processes {
				p := f.start(t, fmt.Sprint(name, warm, i), "/bin/cat")
				for n := range tt.writes {
					if err := p.WriteStdinOnce(f.ctx, fmt.Sprintf("%0256d", n), nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := p.CloseStdin(f.ctx); err != nil {
					t.Fatal(err)
				}
				<-p.Closed()
				f.registry.Drained(p)
			}
			cost, counted := heap()-before, f.registry.Totals().RetainedBytes-charged
			if warm > 0 && cost > 3*counted/2 {
				t.Errorf("%s: the charge is %d bytes, the cost %d", name, counted, cost)
			}
		}
	}
}

// A principal that has started as many processes as it can does not prevent another one
// from starting one.
func TestRetainedTotal_FullOfOnePrincipal_HasSpaceForAnother(t *testing.T) {
	f := newFixture(t, session.Config{RetainedTotal: 17 * charged, ClosedRetention: time.Hour})
	for i := 0; ; i++ {
		if _, _, err := f.Start(f.ctx, fmt.Sprint(i), session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil {
			wantLimit(t, err, session.RetainedOutputFull, 17*charged)
			break
		}
	}
	neighbour, err := f.registry.Open("neighbour", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := neighbour.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil {
		t.Error(err)
	}
}

// A principal that has as many sessions as it can get does not prevent another one from
// getting one.
func TestSessionsTotal_FullOfOnePrincipal_HasSpaceForAnother(t *testing.T) {
	f := newFixture(t, session.Config{SessionsTotal: 16})
	for {
		if _, err := f.registry.Attach(f.ctx, "heavy", session.AttachRequest{}); err != nil {
			wantLimit(t, err, session.TooManySessionsInAll, 16)
			break
		}
	}
	if _, err := f.registry.Attach(f.ctx, "neighbour", session.AttachRequest{}); err != nil {
		t.Error(err)
	}
}
