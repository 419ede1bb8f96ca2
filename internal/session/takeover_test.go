package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

func TestTakeover_LiveAttachment_IsRejected(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		<-c.pings
		c.a.Alive()
	}()
	_, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{SessionID: c.id})
	wantKind(t, err, session.SessionAttached)
	<-answered
	c.start("p", spec("/bin/true"))
	c.takeAll("p")
}

func TestTakeover_DeadAttachment_IsReplaced(t *testing.T) {
	testrace.Slow(t) // waits for a ping timeout
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	const size = 1 << 20
	c.pattern("p")
	c.start("p", small(flood(size)))
	c.take(func() bool { return c.of("p").seq > 0 })
	dead := c.a
	var winners []*session.Attachment
	var mu sync.Mutex
	var contenders sync.WaitGroup
	for range 5 {
		contenders.Go(func() {
			a, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{SessionID: c.id, AfterSeq: c.cursors()})
			mu.Lock()
			defer mu.Unlock()
			var typed *session.Error
			if err == nil {
				winners = append(winners, a)
			} else if !errors.As(err, &typed) || typed.Kind != session.SessionAttached {
				t.Errorf("a loser fails with %v", err)
			}
		})
	}
	contenders.Wait()
	if len(winners) != 1 || len(c.pings) != 1 {
		t.Fatalf("%d attachments won, after %d pings", len(winners), len(c.pings))
	}
	if dead.TookOver() || !winners[0].TookOver() {
		t.Errorf("the first took the session over: %v, the winner: %v", dead.TookOver(), winners[0].TookOver())
	}
	_, err := dead.Next(f.ctx, 0)
	wantKind(t, err, session.SessionTakenOver)
	dead.Alive()
	dead.Lost()
	if err := dead.Acknowledge("p", 1<<40); err != nil {
		t.Errorf("the displaced attachment receives %v", err)
	}
	c.a = winners[0]
	c.takeAll("p")
	if got := c.of("p"); got.dropped != 0 || got.out.Offset() != size {
		t.Errorf("received %d bytes", got.out.Offset())
	}
	c.a.Lost()
}

func TestTakeover_Repeated_LosesAndRepeatsNothing(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	const size = 2 << 20
	c.pattern("p")
	c.start("p", small(flood(size)))
	for !c.of("p").closed {
		if d := c.next(); d.Process != nil {
			c.acknowledge("p")
		}
		a := c.a
		go a.Lost() // while the next one attaches
		c.attach(session.AttachRequest{AfterSeq: c.cursors()})
		if c.of("p").closed {
			break
		}
	}
	if got := c.of("p").out.Offset(); got != size {
		t.Errorf("received %d bytes", got)
	}
	c.a.Lost()
}

// The grace period ends, a client attaches and another one closes at about the same time. In
// every order the attachment reads to an end, and the process ends.
func TestGrace_ExpiryRacesWithAttachAndClose(t *testing.T) {
	f := newFixture(t, session.Config{})
	for i := range 100 {
		grace := 500 * time.Microsecond
		c := f.newClient(t, session.AttachRequest{Grace: &grace})
		p := c.start("p", spec("/bin/cat"))
		c.a.Lost()
		if i%2 == 0 {
			time.Sleep(grace)
		}
		var group sync.WaitGroup
		if id := c.id; i%3 == 0 {
			group.Go(func() { _ = f.registry.CloseSession(f.ctx, "tester", id) })
		}
		err := c.tryAttach(session.AttachRequest{})
		if err == nil {
			_ = p.CloseStdin(f.ctx)
			for err == nil && !c.of("p").closed {
				var d session.Delivery
				if d, err = c.a.Next(f.ctx, 0); err == nil {
					c.check(d)
					_ = c.a.Acknowledge("p", c.of("p").seq)
				}
			}
			c.a.Lost()
		}
		if err != nil {
			var typed *session.Error
			if !errors.As(err, &typed) || typed.Kind != session.SessionNotFound && typed.Kind != session.SessionClosed {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		<-p.Closed()
		group.Wait()
	}
}

func TestAttach_FutureCursor_DisplacesNothing(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	p := c.start("p", spec("/bin/cat"))
	c.a.Lost()
	if err := c.tryAttach(session.AttachRequest{AfterSeq: map[string]uint64{"p": 5, "gone": 7}}); err == nil {
		t.Fatal("a future cursor was accepted")
	}
	if p.Owned() {
		t.Error("a rejected attachment owns the process")
	}
	c.attach(session.AttachRequest{AfterSeq: map[string]uint64{"p": 0, "gone": 7}})
	if !p.Owned() {
		t.Error("the attachment does not own the process")
	}
	if err := c.a.Acknowledge("p", 99); err == nil {
		t.Error("acknowledged events that do not exist")
	}
	c.a.Lost()
}

func TestNext_ContextEnds_Returns(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(errors.New("gone"))
	if _, err := c.a.Next(ctx, 0); err == nil || err.Error() != "gone" {
		t.Errorf("Next = %v", err)
	}
}

func TestFeed_ManyProcesses_IsFair(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Hour})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	const processes = 5
	for i := range processes {
		id := fmt.Sprint("p", i)
		c.pattern(id)
		c.start(id, flood(512<<10))
	}
	c.a.Lost()
	list, _ := c.a.Session().Processes("", processes)
	for _, p := range list {
		<-p.Closed() // all of it fits into the log
	}
	c.attach(session.AttachRequest{})
	defer func() { c.a.Lost() }()
	for round := range 4 {
		turn := map[string]bool{}
		for range processes {
			turn[c.next().Process.ID()] = true
		}
		if len(turn) != processes {
			t.Fatalf("in round %d only %d of %d processes were delivered", round, len(turn), processes)
		}
	}
}

func TestFeed_UnacknowledgedProcess_DoesNotBlockOthers(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	const size = 4 << 20
	stuck := c.start("stuck", small(spec(testproc.Argv("flood", "-bytes", fmt.Sprint(size))...)))
	c.pattern("stuck")
	var ids []string
	for i := range 3 {
		ids = append(ids, fmt.Sprint("p", i))
		c.pattern(ids[i])
		c.start(ids[i], small(flood(size)))
	}
	most := 0
	for !allClosed(c, ids) || c.of("stuck").out.Offset() == 0 { // it may begin late
		if d := c.next(); d.Process != stuck {
			c.acknowledge(d.Process.ID())
		}
		held := 0
		for _, id := range append(ids, "stuck") {
			if p, err := c.a.Session().Process(id); err == nil {
				held += p.Log().Stats().HeldBytes
			}
		}
		most = max(most, held)
	}
	if open := c.of("stuck").out.Offset(); open == 0 || open > 64<<10 {
		t.Errorf("delivered %d bytes without acknowledgement", open)
	}
	const bound = 4 * 1_953_325 // of each log, with the limits of small: see package eventlog
	if most > bound {
		t.Errorf("the logs hold %d bytes, the bound is %d", most, bound)
	}
	c.acknowledge("stuck")
	c.takeAll("stuck")
}

func TestClose_AttachmentReadsToEnd(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(32<<10)))
	c.a.Lost()
	<-p.Closed()
	c.attach(session.AttachRequest{AfterSeq: c.cursors()})
	c.start("q", spec("/bin/cat"))
	if err := f.registry.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	for {
		d, err := c.a.Next(f.ctx, 0)
		if err != nil {
			wantKind(t, err, session.Draining)
			break
		}
		c.check(d)
		_ = c.a.Acknowledge(d.Process.ID(), c.of(d.Process.ID()).seq)
	}
	if !c.of("p").closed || !c.of("q").closed || c.of("p").out.Offset() != 32<<10 {
		t.Errorf("the ends were not delivered: %+v, %+v", c.of("p"), c.of("q"))
	}
	c.a.Lost()
	_, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{})
	wantKind(t, err, session.Draining)
}
