package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// unseenConfig retains seen records very briefly, and unseen ones longer than a test takes.
func unseenConfig(most int) session.Config {
	return session.Config{ClosedRetention: time.Millisecond, UnseenRetention: time.Hour, UnseenPerPrincipal: most}
}

// startAndWaitClosed starts a process without an owner and returns it once it has closed.
func (f *fixture) startAndWaitClosed(t *testing.T, id string) *session.Process {
	t.Helper()
	p := f.start(t, id, "/bin/true")
	f.registry.Drained(p)
	return p
}

// untilRemoved waits until the process has no record.
func (f *fixture) untilRemoved(t *testing.T, id string) {
	t.Helper()
	until(t, f, "the record of "+id+" is removed", func() bool {
		_, err := f.Process(id)
		return err != nil
	})
}

// Of two closed records, the one that was seen is removed and the older one stays.
func TestUnseen_RecordIsKeptUntilItsExitIsSeen(t *testing.T) {
	for name, see := range map[string]func(*fixture, *session.Process){
		"seen":  func(_ *fixture, p *session.Process) { p.Seen("tester") },
		"twice": func(_ *fixture, p *session.Process) { p.Seen("tester"); p.Seen("tester") },
		"acknowledged": func(f *fixture, p *session.Process) {
			o, err := p.Own(f.ctx, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Acknowledge(p.Log().Stats().LastSeq); err != nil {
				t.Fatal(err)
			}
			o.Detach()
		},
		"after it was owned and not acknowledged": func(f *fixture, p *session.Process) {
			o, err := p.Own(f.ctx, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			o.Detach()
			p.Seen("tester")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, unseenConfig(100))
			f.startAndWaitClosed(t, "unseen")
			see(f, f.startAndWaitClosed(t, "seen"))
			f.untilRemoved(t, "seen")
			must(t)(f.Process("unseen"))
		})
	}
}

func TestUnseen_SeenBeforeClosed_IsRemoved(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	f.startAndWaitClosed(t, "unseen")
	p := f.start(t, "p", "/bin/cat")
	p.Seen("tester")
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.untilRemoved(t, "p")
	must(t)(f.Process("unseen"))
}

func TestUnseen_SeenByOtherPrincipal_DoesNotCount(t *testing.T) {
	f := newFixture(t, unseenConfig(100))
	f.startAndWaitClosed(t, "p").Seen("another principal")
	f.startAndWaitClosed(t, "q").Seen("tester")
	f.untilRemoved(t, "q")
	must(t)(f.Process("p")).Seen("tester")
	f.untilRemoved(t, "p")
}

func TestUnseen_OldestBeyondLimit_CountAsSeen(t *testing.T) {
	f := newFixture(t, unseenConfig(3))
	other, err := f.registry.Open("other", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := other.Start(f.ctx, "neighbour", session.Digest{1}, spec("/bin/true"), session.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.registry.Drained(p)
	for i := range 8 {
		f.startAndWaitClosed(t, fmt.Sprint("p", i))
	}
	for i := range 5 {
		f.untilRemoved(t, fmt.Sprint("p", i))
	}
	for i := 5; i < 8; i++ {
		must(t)(f.Process(fmt.Sprint("p", i)))
	}
	must(t)(other.Process("neighbour")) // the limit applies to each principal
}

func TestUnseen_LimitZero_KeepsNone(t *testing.T) {
	f := newFixture(t, unseenConfig(0))
	f.startAndWaitClosed(t, "p")
	f.untilRemoved(t, "p")
}

func TestUnseen_Retention_IsAtLeastThatOfSeen(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Hour, UnseenRetention: time.Millisecond, UnseenPerPrincipal: 100})
	brief := newFixture(t, unseenConfig(100))
	f.startAndWaitClosed(t, "p")
	brief.startAndWaitClosed(t, "q").Seen("tester")
	brief.untilRemoved(t, "q")
	must(t)(f.Process("p"))
}

// For a new process, seen records are evicted before older unseen ones.
func TestUnseen_Records_AreEvictedLast(t *testing.T) {
	cfg := unseenConfig(100)
	cfg.ClosedRetention, cfg.RetainedTotal = 30*time.Minute, (3*charged+64<<10)*8/7+8 // an eighth is reserved for others
	f := newFixture(t, cfg)
	for _, id := range []string{"unseen", "seen0", "seen1"} {
		p, _, err := f.Start(f.ctx, id, session.Digest{1}, flood(900<<10), session.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.registry.Drained(p)
		if id != "unseen" {
			p.Seen("tester")
		}
	}
	f.start(t, "p", "/bin/cat")
	f.start(t, "q", "/bin/cat")
	must(t)(f.Process("unseen"))
	_, err := f.Process("seen0")
	wantKind(t, err, session.ProcessNotFound)
	f.start(t, "r", "/bin/cat") // needs the whole budget
	_, err = f.Process("unseen")
	wantKind(t, err, session.ProcessNotFound)
}

// Finished processes whose output nobody has read are charged for little memory, and their
// output is complete.
func TestUnseen_Output_IsInFilesAndNotInMemory(t *testing.T) {
	const processes, bytes = 20, 1 << 20
	files := eventlog.NewFiles(t.TempDir(), nil)
	files.SetLimits(64<<20, 1<<30)
	f := newFixtureOf(t, process.NewSupervisor(process.Config{Files: files}), unseenConfig(100))
	for i := range processes {
		if _, _, err := f.Start(f.ctx, fmt.Sprint(i), session.Digest{1}, flood(bytes), session.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, f, "the output is in files", func() bool { return f.registry.Totals().RetainedBytes < processes*32<<10 })
	for i := range processes {
		p, err := f.Process(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		reader, err := p.Log().NewReader(0)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			batch, err := reader.Next(f.ctx, 0)
			if err != nil {
				break // the end
			}
			if batch.Gap != nil {
				t.Fatalf("a gap: %+v", batch.Gap)
			}
			for _, e := range batch.Events {
				got += len(e.Data)
			}
		}
		reader.Close()
		if got != bytes {
			t.Errorf("process %d has %d bytes of output, not %d", i, got, bytes)
		}
	}
}
