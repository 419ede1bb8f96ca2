package session_test

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

var replacing = session.StartOptions{Replace: true}

// The record of a process that is replaced stays until its replacement has started: if that
// cannot be executed, it is there with its output and still expires.
func TestStart_ReplacementFails_KeepsRecord(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	old := f.startAndWaitClosed(t, "p")
	for range 3 {
		_, _, err := f.Start(f.ctx, "p", session.Digest{2}, spec("/no/such/program"), replacing)
		if _, ok := err.(*process.Error); !ok {
			t.Fatalf("the start of a program that does not exist: %v", err)
		}
		if p := must(t)(f.Process("p")); p != old {
			t.Fatalf("p is %v, want the record of the first process", p)
		}
	}
	p, created, err := f.Start(f.ctx, "p", session.Digest{3}, spec("/bin/true"), replacing)
	if err != nil || !created || must(t)(f.Process("p")) != p {
		t.Fatalf("the replacement is %v, %v, %v", p, created, err)
	}
	f.registry.Drained(p)
	p.Seen("tester")
	f.untilRemoved(t, "p")
	until(t, f, "nothing is charged", func() bool { return f.registry.Totals().RetainedBytes == 0 })
}

// The record that a start replaces may expire while the start is under way.
func TestStart_ReplacedRecordExpires_WhileReplacementFails(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	old := f.startAndWaitClosed(t, "p")
	fail := old.BeginReplace()
	old.Expire()
	fail()
	f.untilRemoved(t, "p")
	until(t, f, "nothing is charged", func() bool { return f.registry.Totals().RetainedBytes == 0 })
}

// A client that has found a record does not become its owner while a start replaces it, after which the
// record would be removed.
func TestOwn_RecordIsReplaced_IsNotFound(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	old := f.startAndWaitClosed(t, "p")
	fail := old.BeginReplace()
	_, err := old.Own(f.ctx, 0, nil)
	fail()
	wantKind(t, err, session.ProcessNotFound)
	if _, err := old.Own(f.ctx, 0, nil); err != nil {
		t.Errorf("after the start has failed: %v", err)
	}
}

func TestStart_ReplaceOwnedOrRunning_IsRefused(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	running := f.start(t, "running", "/bin/cat")
	owned := f.startAndWaitClosed(t, "owned")
	if _, err := owned.Own(f.ctx, 0, nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*session.Process{running, owned} {
		_, _, err := f.Start(f.ctx, p.ID(), session.Digest{2}, spec("/bin/true"), replacing)
		wantKind(t, err, session.ProcessAlreadyExists)
	}
}

// A time to keep holds from the close of a process, whether its exit was seen or not.
func TestKeep_IsTheRetention_SeenOrNot(t *testing.T) {
	cfg := unseenConfig(100)
	cfg.MaxKeep = time.Hour
	f := newFixture(t, cfg)
	start := func(id string, keep time.Duration) *session.Process {
		p, _, err := f.Start(f.ctx, id, session.Digest{1}, spec("/bin/true"), session.StartOptions{Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		f.registry.Drained(p)
		return p
	}
	start("long", time.Hour).Seen("tester")
	start("unseen", time.Hour)
	start("brief", 2*time.Millisecond)
	f.startAndWaitClosed(t, "seen").Seen("tester")
	f.untilRemoved(t, "brief")
	f.untilRemoved(t, "seen")
	must(t)(f.Process("long"))
	must(t)(f.Process("unseen"))

	_, _, err := f.Start(f.ctx, "longer", session.Digest{1}, spec("/bin/true"), session.StartOptions{Keep: time.Hour + 1})
	wantKind(t, err, session.KeepTooLong)
}

// Records with a time to keep count for the limit of those that are kept for longer.
func TestKeep_OldestBeyondLimit_AreKeptAsSeen(t *testing.T) {
	cfg := unseenConfig(1)
	cfg.MaxKeep = time.Hour
	f := newFixture(t, cfg)
	p, _, err := f.Start(f.ctx, "kept", session.Digest{1}, spec("/bin/true"), session.StartOptions{Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.registry.Drained(p)
	f.startAndWaitClosed(t, "later")
	f.untilRemoved(t, "kept")
	must(t)(f.Process("later"))
}

// A leased session keeps a process until its client has the end, and for no time of its own.
func TestKeep_InLeasedSession_IsRefused(t *testing.T) {
	f := newFixture(t, session.Config{DefaultGrace: time.Hour, MaxKeep: time.Hour})
	_, _, err := f.newClient(t, session.AttachRequest{}).a.Session().Start(f.ctx, "p", session.Digest{1}, spec("/bin/true"), session.StartOptions{Keep: time.Hour})
	wantKind(t, err, session.KeepInLease)
}
