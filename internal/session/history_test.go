package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testrace"
)

// heapBytes returns the size of what is reachable on the heap.
func heapBytes() int64 {
	var stats runtime.MemStats
	for range 2 { // the second collects what finalizers of the first have released
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// recovered returns the record of a process that printed a line under an earlier server.
func recovered(t *testing.T, supervisor *process.Supervisor, id string) session.Recovered {
	t.Helper()
	now := time.Now()
	output := []byte("said by " + id + "\n")
	p, err := supervisor.Recover(process.Spec{Argv: []string{"/bin/echo", id}, Cwd: "/", Output: eventlog.Limits{SnapshotBytes: 1 << 10}}, 1, now,
		process.ExitRecord{Cause: process.CauseExited, ExitedAt: now}, &eventlog.State{
			Limits:  eventlog.Limits{SnapshotBytes: 1 << 10},
			Events:  []eventlog.Event{{Seq: 2, Kind: eventlog.Exited}, {Seq: 3, Kind: eventlog.Closed}},
			Streams: []eventlog.StreamState{{Stream: eventlog.Stdout, Total: uint64(len(output)), Head: output, Tail: output}},
		})
	if err != nil {
		t.Fatal(err)
	}
	return session.Recovered{Principal: "tester", ID: id, Digest: session.Digest{1}, ClosedAt: now, Process: p}
}

// Ten thousand finished processes are listed and use no more memory than is charged for them;
// of more, the oldest go. A soak runs them all; otherwise most of them are of an earlier server.
func TestHistory_TenThousandProcesses_UseWhatIsCharged(t *testing.T) {
	const most, allowed = 10_000, 80 << 20
	run := 100
	if os.Getenv("EXECWIRE_SOAK") != "" {
		run = most
	}
	cfg := unseenConfig(most)
	cfg.UnseenBytesPerPrincipal, cfg.MaxGrace = allowed, time.Hour
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*testTimeout, errors.New("the test hangs"))
	defer cancel()
	supervisor := process.NewSupervisor(process.Config{})
	registry := session.NewRegistry(supervisor, cfg)
	defer func() {
		if err := registry.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	s, err := registry.Open("tester", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	before := heapBytes()
	ids := make(chan string)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for id := range ids {
				p, _, err := s.Start(ctx, id, session.Digest{1}, spec("/bin/echo", id), session.StartOptions{})
				if err != nil {
					t.Error(err)
					continue
				}
				registry.Drained(p)
			}
		})
	}
	for i := range run {
		ids <- fmt.Sprintf("p%05d", i)
	}
	close(ids)
	group.Wait()
	for i := run; i < most; i++ {
		if _, err := registry.Recover(recovered(t, supervisor, fmt.Sprintf("p%05d", i))); err != nil {
			t.Fatal(err)
		}
	}
	grown, charged := heapBytes()-before, registry.Totals().RetainedBytes
	t.Logf("%d records, %d of them run here: %d bytes of heap, %d are charged", most, run, grown, charged)
	if charged > allowed || grown > charged && !testrace.Enabled {
		t.Errorf("%d records use %d bytes, and are charged with %d of %d", most, grown, charged, allowed)
	}
	listed, after := 0, ""
	for {
		list, more := s.Processes(after, 1000)
		for _, p := range list {
			if exit, ok := p.Exit(); !ok || exit.Cause != process.CauseExited || len(p.Log().Tail(eventlog.Stdout, 100)) == 0 {
				t.Fatalf("%s has ended with %v", p.ID(), exit)
			}
		}
		if listed += len(list); !more {
			break
		}
		after = list[len(list)-1].ID()
	}
	if listed != most {
		t.Errorf("%d of %d are listed", listed, most)
	}
	if _, err := registry.Recover(recovered(t, supervisor, "last")); err != nil {
		t.Fatal(err)
	}
	for list := []*session.Process(nil); len(list) != most; time.Sleep(time.Millisecond) {
		if list, _ = s.Processes("", 2*most); len(list) < most || ctx.Err() != nil {
			t.Fatalf("%d records are left of %d and one more", len(list), most)
		}
	}
}

// The hooks for records of detached processes see each from its start to its end, and are told
// when it is removed, but not by the end of the server.
func TestRecords_OfDetachedProcesses_FollowThem(t *testing.T) {
	var mu sync.Mutex
	records := map[string]string{}
	cfg := unseenConfig(100)
	cfg.OnRecord = func(p *session.Process) {
		mu.Lock()
		defer mu.Unlock()
		records[p.ID()] = "runs"
		if p.State() == process.StateClosed {
			records[p.ID()] = "closed"
		}
	}
	cfg.OnForgotten = func(p *session.Process) {
		mu.Lock()
		defer mu.Unlock()
		delete(records, p.ID())
	}
	is := func(id string) string {
		mu.Lock()
		defer mu.Unlock()
		return records[id]
	}
	f := newFixture(t, cfg)
	f.start(t, "runs", "/bin/cat")
	if is("runs") != "runs" {
		t.Errorf("a process that runs is %q when its start returns", is("runs"))
	}
	for i := range 50 { // the end can come before the start returns, and the removal before the end is recorded
		f.startAndWaitClosed(t, fmt.Sprint("brief", i)).Seen("tester")
	}
	f.startAndWaitClosed(t, "unseen")
	until(t, f, "only what is kept has a record", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(records) == 2 && records["unseen"] == "closed"
	})
	if _, _, err := f.StartOwned(f.ctx, "owned", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	leased := f.newClient(t, session.AttachRequest{})
	if _, _, err := leased.a.Session().Start(f.ctx, "leased", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if is("owned") != "" || is("leased") != "" {
		t.Errorf("processes with an owner have records: %v", records)
	}
	if err := f.registry.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	if is("unseen") != "closed" || is("runs") != "closed" {
		t.Errorf("after the end of the server there are %v", records)
	}
}

// The record of a process that closed under an earlier server is kept from its close, as others.
func TestRecover_IsKeptFromItsClose(t *testing.T) {
	f := newFixture(t, unseenConfig(10))
	supervisor := process.NewSupervisor(process.Config{})
	for id, c := range map[string]struct{ ago, keep time.Duration }{
		"old": {time.Hour, 0}, "new": {time.Minute, 0}, "old, kept": {time.Hour, 2 * time.Hour}, "old, was kept": {2 * time.Hour, time.Hour},
	} {
		from := recovered(t, supervisor, id)
		from.ClosedAt, from.Keep = from.ClosedAt.Add(-c.ago), c.keep
		p, err := f.registry.Recover(from)
		if err != nil || !p.ClosedAt().Equal(from.ClosedAt) {
			t.Fatalf("%s: %v, %v", id, p, err)
		}
	}
	var err error
	if f.Session, err = f.registry.Open("tester", "", session.AccessOwner); err != nil {
		t.Fatal(err)
	}
	f.untilRemoved(t, "old")
	f.untilRemoved(t, "old, was kept")
	must(t)(f.Process("new"))
	must(t)(f.Process("old, kept"))
}

func TestRecover_TakenID_IsRefused(t *testing.T) {
	supervisor := process.NewSupervisor(process.Config{})
	registry := session.NewRegistry(supervisor, unseenConfig(10))
	defer func() { _ = registry.Close(t.Context()) }()
	if _, err := registry.Recover(recovered(t, supervisor, "p")); err != nil {
		t.Fatal(err)
	}
	_, err := registry.Recover(recovered(t, supervisor, "p"))
	wantKind(t, err, session.ProcessAlreadyExists)
	registry.Drain()
	_, err = registry.Recover(recovered(t, supervisor, "q"))
	wantKind(t, err, session.Draining)
}
