package session_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

// spooled returns the bytes on the disk of the files without a name that were
// made in dir.
func spooled(t *testing.T, dir string) (files int, bytes int64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join("/proc/self/fd", e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			t.Fatal(err)
		}
		files++
		bytes += stat.Blocks * 512
	}
	return files, bytes
}

func TestSpoolIsBoundedAndExact(t *testing.T) {
	const bound, size = 256 << 10, 2 << 20
	dir := t.TempDir()
	f := newFixture(t, session.Config{SpoolBytes: bound, SpoolDirectory: dir})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	for round := range 2 {
		id := fmt.Sprint("p", round)
		c.pattern(id)
		p := c.start(id, small(flood(size)))
		c.a.Lost()
		said := func() uint64 { return p.Log().Stats().Totals[eventlog.Stdout] }
		until(t, f, "the spool is full and the process blocks", func() bool {
			return said() > bound/2 && p.Log().Stats().UnacknowledgedBytes >= 40<<10
		})
		before := said()
		if _, on := spooled(t, dir); on > bound || before > bound+64<<10 {
			t.Errorf("%d bytes on the disk, %d were said", on, before)
		}
		c.attach(session.AttachRequest{AfterSeq: c.cursors()})
		c.takeAll(id)
		if got := c.of(id); got.dropped != 0 || got.out.Offset() != size {
			t.Fatalf("%d bytes arrived, %d are missing", got.out.Offset(), got.dropped)
		}
		if files, on := spooled(t, dir); files != 1 || on != 0 {
			t.Errorf("%d files of %d bytes are left though everything was taken", files, on)
		}
	}
	c.a.Lost()
	if err := f.registry.CloseSession(f.ctx, "tester", c.id); err != nil {
		t.Fatal(err)
	}
	if files, _ := spooled(t, dir); files != 0 {
		t.Errorf("%d files are left of a session that is gone", files)
	}
}

func TestSpoolSurvivesLossInMidReplay(t *testing.T) {
	const size = 4 << 20
	f := newFixture(t, session.Config{SpoolBytes: 64 << 20})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(size)))
	c.a.Lost()
	<-p.Closed()
	random := rand.New(rand.NewPCG(1, 2))
	for rounds := 0; !c.of("p").closed; rounds++ {
		c.attach(session.AttachRequest{AfterSeq: c.cursors()})
		for range random.IntN(4) {
			d := c.next()
			if random.IntN(3) == 0 || c.of("p").closed {
				break // taken, and the server does not know
			}
			c.acknowledge(d.Process.ID())
		}
		c.a.Lost()
		if rounds > 10_000 {
			t.Fatal("it comes to no end")
		}
	}
	if got := c.of("p"); got.dropped != 0 || got.out.Offset() != size {
		t.Errorf("%d bytes arrived, %d are missing", got.out.Offset(), got.dropped)
	}
}

func TestReplayKeepsToTheWindow(t *testing.T) {
	const size, window = 1 << 20, 64 << 10
	f := newFixture(t, session.Config{SpoolBytes: 64 << 20})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(size)))
	c.a.Lost()
	<-p.Closed()
	c.attach(session.AttachRequest{})
	defer func() { c.a.Lost() }()
	c.start("q", spec(testproc.Argv("echo")...)) // says something only at the end
	acked := uint64(0)
	for !c.of("p").closed {
		for c.of("p").out.Offset()-acked < window/2 && !c.of("p").closed {
			c.next()
			if open := c.of("p").out.Offset() - acked; open > window {
				t.Fatalf("%d bytes are unacknowledged", open)
			}
		}
		c.acknowledge("p")
		acked = c.of("p").out.Offset()
	}
	if c.of("p").out.Offset() != size {
		t.Errorf("%d bytes arrived", c.of("p").out.Offset())
	}
}

func TestReplayThatIsNotAcknowledgedStopsNoOther(t *testing.T) {
	f := newFixture(t, session.Config{SpoolBytes: 64 << 20})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	c.pattern("stuck")
	c.pattern("other")
	stuck := c.start("stuck", small(flood(1<<20)))
	other := c.start("other", small(flood(1<<20)))
	c.a.Lost()
	<-stuck.Closed()
	<-other.Closed()
	c.attach(session.AttachRequest{})
	for !c.of("other").closed {
		if d := c.next(); d.Process == other {
			c.acknowledge("other")
		}
	}
	if open := c.of("stuck").out.Offset(); open == 0 || open > 64<<10 {
		t.Errorf("%d bytes were delivered of what is not acknowledged", open)
	}
	c.acknowledge("stuck")
	c.takeAll("stuck")
	c.a.Lost()
}

// What was spooled belongs to whoever owns the process next, a stream included,
// and comes back to the session if the stream does not take it.
func TestStreamReadsWhatWasSpooled(t *testing.T) {
	const size = 1 << 20
	f := newFixture(t, session.Config{SpoolBytes: 64 << 20})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(size)))
	c.a.Lost()
	until(t, f, "much of it was spooled", func() bool { return p.Log().Stats().AcknowledgedBytes > size/2 })
	read := func(most int) {
		t.Helper()
		o, err := p.Own(f.ctx, c.of("p").seq, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range most {
			batch, err := o.Next(f.ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			c.check(session.Delivery{Process: p, Batch: batch})
			if o.Taken() {
				t.Fatal("it is taken before it was acknowledged")
			}
			if err := o.Acknowledge(c.of("p").seq); err != nil {
				t.Fatal(err)
			}
			if c.of("p").closed {
				break
			}
		}
		o.Detach()
	}
	read(3)
	read(3)
	c.attach(session.AttachRequest{})
	c.next()
	read(1) // while somebody is attached, who has not acknowledged anything of it
	c.takeAll("p")
	c.a.Lost()
	if got := c.of("p"); got.dropped != 0 || got.out.Offset() != size {
		t.Errorf("%d bytes arrived, %d are missing", got.out.Offset(), got.dropped)
	}
}

func TestSpoolUnavailable(t *testing.T) {
	f := newFixture(t, session.Config{SpoolBytes: 1 << 20, SpoolDirectory: "/nonexistent"})
	_, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{WhenDetached: session.WhenDetachedSpool})
	wantKind(t, err, session.SpoolUnavailable)
	if strings.Contains(err.Error(), "nonexistent") {
		t.Errorf("a client is told where files are: %v", err)
	}
	until(t, f, "nothing is left of it", func() bool {
		list, _ := f.registry.Sessions("tester", "", 10)
		return len(list) == 0
	})
}

// TestRandomLives cuts one client's attachments at random, under each policy that
// loses nothing, while several processes say something.
func TestRandomLives(t *testing.T) {
	const cycles, processes, size = 200, 4, 1 << 20
	for name, policy := range map[string]session.WhenDetached{"block": session.WhenDetachedBlock, "spool": session.WhenDetachedSpool} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, session.Config{SpoolBytes: 1 << 20})
			c := f.newClient(t, session.AttachRequest{WhenDetached: policy, Grace: within(time.Hour)})
			var ids []string
			for i := range processes {
				ids = append(ids, fmt.Sprint("p", i))
				c.pattern(ids[i])
				c.start(ids[i], small(flood(size)))
			}
			random := rand.New(rand.NewPCG(3, 4))
			for range cycles {
				for range random.IntN(5) {
					d, err := c.a.Next(f.ctx, 1+random.IntN(64<<10))
					if err != nil {
						t.Fatal(err)
					}
					c.check(d)
					if random.IntN(4) == 0 || allClosed(c, ids) {
						break // taken, and the server does not know
					}
					c.acknowledge(d.Process.ID())
				}
				if allClosed(c, ids) {
					break
				}
				c.a.Lost()
				if random.IntN(2) == 0 {
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
				c.attach(session.AttachRequest{AfterSeq: c.cursors()})
			}
			for id := range c.seen {
				c.acknowledge(id)
			}
			c.takeAll(ids...)
			for _, id := range ids {
				if got := c.of(id); got.dropped != 0 || got.out.Offset() != size {
					t.Errorf("%s: %d bytes arrived, %d are missing", id, got.out.Offset(), got.dropped)
				}
			}
			c.a.Detach()
		})
	}
}

func allClosed(c *client, ids []string) bool {
	for _, id := range ids {
		if !c.of(id).closed {
			return false
		}
	}
	return true
}

// What was spooled is there for the attachment that is reading it when the
// registry closes.
func TestSpoolIsReadToItsEndWhenTheRegistryCloses(t *testing.T) {
	const size = 2 << 20
	dir := t.TempDir()
	f := newFixture(t, session.Config{SpoolBytes: 16 << 20, SpoolDirectory: dir})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedSpool, Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(size)))
	q := c.start("q", spec("/bin/cat"))
	c.a.Lost()
	<-p.Closed()
	until(t, f, "all of it is spooled", func() bool {
		stats := p.Log().Stats()
		return stats.Acknowledged == stats.LastSeq
	})
	c.attach(session.AttachRequest{})
	c.next()
	if err := f.registry.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	<-q.Closed()
	for id := range c.seen {
		c.acknowledge(id)
	}
	c.takeAll("p", "q")
	if got := c.of("p"); got.dropped != 0 || got.out.Offset() != size {
		t.Errorf("%d bytes arrived, %d are missing", got.out.Offset(), got.dropped)
	}
	_, err := c.a.Next(f.ctx, 0)
	wantKind(t, err, session.Draining)
	c.a.Lost()
	if files, _ := spooled(t, dir); files != 0 {
		t.Errorf("%d files are left", files)
	}
}
