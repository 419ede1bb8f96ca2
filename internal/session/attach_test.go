package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

func TestAttach_ReceivesAllProcesses(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	defer c.a.Lost()
	var ids []string
	for i := range 50 {
		id := fmt.Sprint("p", i)
		ids = append(ids, id)
		c.start(id, spec("/bin/echo", id))
	}
	c.takeAll(ids...)
	for _, id := range ids {
		if got := string(c.of(id).text); got != id+"\n" {
			t.Errorf("the output of %s is %q", id, got)
		}
	}
}

func TestAttach_FirstByte_IsNotLost(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	const size = 1 << 20
	c.pattern("p")
	if p := c.start("p", small(flood(size))); !p.Spec().Output.Held {
		t.Fatal("output could be evicted between the start and the ownership")
	}
	c.takeAll("p")
	if got := c.of("p").out.Offset(); got != size {
		t.Errorf("received %d bytes", got)
	}
}

func TestDetach_Policies(t *testing.T) {
	const size = 3 << 20
	for name, tt := range map[string]struct {
		policy session.WhenDetached
		waits  bool // the process blocks before it has written everything
		gap    bool
	}{
		"block":   {policy: session.WhenDetachedBlock, waits: true},
		"discard": {policy: session.WhenDetachedDiscardOldest, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, session.Config{ClosedRetention: time.Hour})
			c := f.newClient(t, session.AttachRequest{WhenDetached: tt.policy, Grace: within(time.Hour)})
			c.pattern("p")
			p := c.start("p", small(flood(size)))
			c.take(func() bool { return c.of("p").seq > 0 })
			c.a.Lost()
			if _, err := c.a.Next(f.ctx, 0); !errors.Is(err, session.ErrDetached) {
				t.Errorf("a lost attachment reads %v", err)
			}
			if tt.waits {
				until(t, f, "the window is used up", func() bool { return p.Log().Stats().UnacknowledgedBytes >= 40<<10 })
			} else {
				<-p.Closed()
			}
			c.attach(session.AttachRequest{AfterSeq: c.cursors()})
			defer func() { c.a.Lost() }()
			c.takeAll("p")
			s := c.of("p")
			if tt.gap {
				if total := s.offset[eventlog.Stdout]; s.dropped == 0 || total != size {
					t.Errorf("the gaps have %d bytes, the end is at %d", s.dropped, total)
				}
			} else if s.dropped != 0 || s.out.Offset() != size {
				t.Errorf("%d bytes are missing, received %d", s.dropped, s.out.Offset())
			}
		})
	}
}

func TestGrace_Expires_EndsSession(t *testing.T) {
	for _, grace := range []time.Duration{0, 30 * time.Millisecond} {
		t.Run(grace.String(), func(t *testing.T) {
			f := newFixture(t, session.Config{})
			c := f.newClient(t, session.AttachRequest{Grace: &grace})
			p := c.start("p", spec(testproc.Argv("ignore-term")...))
			q := c.start("q", small(flood(1<<20)))
			c.a.Lost()
			<-p.Closed()
			<-q.Closed() // although no client has read its output
			if exit, _ := p.Exit(); exit.Cause != process.CauseTerminated {
				t.Errorf("exit is %+v", exit)
			}
			wantKind(t, c.tryAttach(session.AttachRequest{}), session.SessionNotFound)
			until(t, f, "the session is removed", func() bool {
				list, _ := f.registry.Sessions("tester", "", 10)
				return len(list) == 0
			})
		})
	}
}

func TestCloseSession_EndsProcesses(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	p := c.start("p", spec("/bin/cat"))
	owned, _, err := c.a.Session().StartOwned(f.ctx, "owned", session.Digest{2}, spec("/bin/cat"), session.StartOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.registry.CloseSession(f.ctx, "other", c.id); err == nil {
		t.Error("another principal closed the session")
	}
	if err := f.registry.CloseSession(f.ctx, "tester", c.id); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*session.Process{p, owned.Process()} {
		select {
		case <-p.Closed():
		default:
			t.Errorf("process %s still exists", p.ID())
		}
	}
	_, err = c.a.Next(f.ctx, 0)
	wantKind(t, err, session.SessionClosed)
	c.a.Lost()
	owned.Lost()
	_, err = c.a.Session().Process("p")
	wantKind(t, err, session.ProcessNotFound)
	_, _, err = c.a.Session().Start(f.ctx, "late", session.Digest{3}, spec("/bin/true"), session.StartOptions{})
	wantKind(t, err, session.SessionClosed)
	wantKind(t, f.registry.CloseSession(f.ctx, "tester", c.id), session.SessionNotFound)
}

func TestCloseSession_CallerCancelled_Continues(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	p := c.start("p", spec("/bin/cat"))
	gone, cancel := context.WithCancelCause(f.ctx)
	cancel(errors.New("gone"))
	if err := f.registry.CloseSession(gone, "tester", c.id); err != nil && err.Error() != "gone" {
		t.Error(err)
	}
	<-p.Closed()
	c.a.Lost()
}

// A caller that found the default session before it was closed starts in the next one: a
// default session always exists.
func TestDefaultSession_Closed_StartUsesNext(t *testing.T) {
	f := newFixture(t, session.Config{})
	f.start(t, "p", "/bin/cat")
	if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
		t.Fatal(err)
	}
	again := f.start(t, "p", "/bin/cat")
	if _, err := again.Own(f.ctx, 0, nil); err != nil {
		t.Error(err)
	}
}

// CloseSession of a session that is closing waits for its end too.
func TestCloseSession_Twice_WaitsForEnd(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	gone, cancel := context.WithCancelCause(f.ctx)
	cancel(errors.New("gone"))
	for id, start := range map[string]func(id string) *session.Process{
		session.DefaultID: func(id string) *session.Process { return f.start(t, id, "/bin/cat") },
		c.id:              func(id string) *session.Process { return c.start(id, spec("/bin/cat")) },
	} {
		var all []*session.Process
		for i := range 10 {
			all = append(all, start(fmt.Sprint(i)))
		}
		if err := f.registry.CloseSession(gone, "tester", id); err != nil && err.Error() != "gone" {
			t.Error(err)
		}
		if err := f.registry.CloseSession(f.ctx, "tester", id); err != nil {
			wantKind(t, err, session.SessionNotFound) // the first call has already finished
		}
		for _, p := range all {
			select {
			case <-p.Closed():
			default:
				t.Fatalf("session %s is closed, and process %s still exists", id, p.ID())
			}
		}
	}
}

func TestDefaultSession_Closed_ReopensEmpty(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
		t.Fatal(err)
	}
	<-p.Closed()
	again, err := f.registry.Open("tester", session.DefaultID, session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := again.Processes("", 10); len(list) != 0 {
		t.Errorf("%d processes remain", len(list))
	}
	if _, _, err := again.Start(f.ctx, "p", session.Digest{1}, spec("/bin/true"), session.StartOptions{}); err != nil {
		t.Error(err)
	}
	if err := f.registry.CloseSession(f.ctx, "nobody", ""); err != nil {
		t.Errorf("closing a session that does not exist: %v", err)
	}
}

func TestRecord_Unacknowledged_IsRetained(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	p := c.start("p", spec("/bin/echo", "x"))
	c.a.Lost()
	f.registry.Drained(p)
	time.Sleep(20 * time.Millisecond) // time in which a record could be removed wrongly
	c.attach(session.AttachRequest{})
	c.takeAll("p")
	if got := string(c.of("p").text); got != "x\n" {
		t.Errorf("the output of p is %q", got)
	}
	until(t, f, "the record is removed after the acknowledgement", func() bool {
		_, err := c.a.Session().Process("p")
		return err != nil
	})
	c.a.Lost()
}

func TestCloseSession_WaitsForConcurrentStarts(t *testing.T) {
	f := newFixture(t, session.Config{})
	for range 30 {
		c := f.newClient(t, session.AttachRequest{})
		s := c.a.Session()
		started := make(chan *session.Process)
		go func() {
			p, _, _ := s.Start(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), session.StartOptions{})
			started <- p
		}()
		if err := f.registry.CloseSession(f.ctx, "tester", c.id); err != nil {
			t.Fatal(err)
		}
		if list, _ := s.Processes("", 10); len(list) != 0 {
			t.Error("the session is closed but has a process")
		}
		if p := <-started; p != nil {
			<-p.Closed()
		}
		c.a.Lost()
	}
}

// A client that resumes late misses evicted output of DISCARD sessions, but never the exit
// of a process.
func TestDetach_DiscardOldest_KeepsExit(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedDiscardOldest, Grace: within(time.Hour)})
	c.pattern("p")
	p := c.start("p", small(flood(1<<20)))
	before := c.start("before", spec("/bin/cat"))
	c.a.Lost()
	<-p.Closed()
	f.registry.Drained(p)
	if _, err := before.Terminate(f.ctx, process.Termination{}); err != nil {
		t.Fatal(err)
	}
	<-before.Closed()
	time.Sleep(20 * time.Millisecond) // time for the records to be removed
	c.attach(session.AttachRequest{AfterSeq: c.cursors()})
	defer func() { c.a.Lost() }()
	if info := c.a.Session().Info("tester"); info.Processes != 2 {
		t.Fatalf("the session has %d processes, want both", info.Processes)
	}
	c.takeAll("p", "before")
	if s := c.of("p"); s.dropped == 0 || !s.exited {
		t.Errorf("the client has %+v", s)
	}
	until(t, f, "the acknowledged records are removed", func() bool { return c.a.Session().Info("tester").Processes == 0 })
}
