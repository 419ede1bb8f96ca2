package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

// client is somebody who attaches to one session again and again, and checks
// that nothing of it is lost or said twice.
type client struct {
	t         *testing.T
	f         *fixture
	principal string
	id        string // of the session
	a         *session.Attachment
	seen      map[string]*seen
	pings     chan struct{}
}

// seen is what a client knows of one process.
type seen struct {
	seq     uint64
	offset  map[eventlog.Stream]uint64
	out     *testproc.Verifier // nil: said is kept instead
	said    []byte
	exited  bool
	closed  bool
	dropped uint64 // bytes in gaps
}

// newClient returns a client that is attached to a new session.
func (f *fixture) newClient(t *testing.T, req session.AttachRequest) *client {
	t.Helper()
	c := &client{t: t, f: f, principal: "tester", seen: make(map[string]*seen), pings: make(chan struct{}, 100)}
	c.attach(req)
	return c
}

func (c *client) attach(req session.AttachRequest) {
	c.t.Helper()
	if err := c.tryAttach(req); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) tryAttach(req session.AttachRequest) error {
	req.SessionID = c.id
	req.Ping = func() { c.pings <- struct{}{} }
	a, err := c.f.registry.Attach(c.f.ctx, c.principal, req)
	if err != nil {
		return err
	}
	if a.Resumed() != (c.id != "") {
		c.t.Errorf("resumed is %v", a.Resumed())
	}
	c.a, c.id = a, a.Session().ID()
	return nil
}

// cursors is what the client has taken of everything.
func (c *client) cursors() map[string]uint64 {
	m := make(map[string]uint64)
	for id, s := range c.seen {
		m[id] = s.seq
	}
	return m
}

// start starts a process in the client's session.
func (c *client) start(id string, spec process.Spec) *session.Process {
	c.t.Helper()
	p, created, err := c.a.Session().Start(c.f.ctx, id, session.Digest{1}, spec)
	if err != nil || !created {
		c.t.Fatalf("Start = %v, %v", created, err)
	}
	return p
}

// pattern has the client check the output of a process against the pattern of
// the program flood, instead of keeping it.
func (c *client) pattern(id string) {
	c.of(id).out = testproc.StdoutPattern.NewVerifier()
}

func (c *client) of(id string) *seen {
	if c.seen[id] == nil {
		c.seen[id] = &seen{offset: make(map[eventlog.Stream]uint64)}
	}
	return c.seen[id]
}

// next takes one delivery, checked, and returns it.
func (c *client) next() session.Delivery {
	c.t.Helper()
	d, err := c.a.Next(c.f.ctx, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.check(d)
	return d
}

// check notes what was delivered, and fails the test for what should not have
// been.
func (c *client) check(d session.Delivery) {
	c.t.Helper()
	if d.Released != nil {
		return
	}
	s := c.of(d.Process.ID())
	if g := d.Batch.Gap; g != nil {
		s.dropped += g.DroppedBytes
		s.seq = g.FirstAvailableSeq - 1
		s.out = nil
		clear(s.offset)
	}
	for _, e := range d.Batch.Events {
		if e.Seq != s.seq+1 {
			c.t.Fatalf("%s: event %d follows %d", d.Process.ID(), e.Seq, s.seq)
		}
		s.seq = e.Seq
		switch e.Kind {
		case eventlog.Exited:
			s.exited = true
		case eventlog.Closed:
			if !s.exited {
				c.t.Fatalf("%s closed without an exit", d.Process.ID())
			}
			s.closed = true
		default:
			s.output(c.t, e)
		}
	}
}

func (s *seen) output(t *testing.T, e eventlog.Event) {
	t.Helper()
	if want, known := s.offset[e.Stream]; known && e.Offset != want || !known && s.dropped == 0 && e.Offset != 0 {
		t.Fatalf("%v at offset %d, want %d", e.Stream, e.Offset, want)
	}
	s.offset[e.Stream] = e.Offset + uint64(len(e.Data))
	if s.out == nil {
		s.said = append(s.said, e.Data...)
	} else if _, err := s.out.Write(e.Data); err != nil {
		t.Fatal(err)
	}
}

// take takes deliveries and acknowledges them until done.
func (c *client) take(done func() bool) {
	c.t.Helper()
	for !done() {
		if d := c.next(); d.Process != nil {
			c.acknowledge(d.Process.ID())
		}
	}
}

func (c *client) acknowledge(id string) {
	c.t.Helper()
	if err := c.a.Acknowledge(id, c.of(id).seq); err != nil {
		c.t.Fatal(err)
	}
}

// takeAll takes everything of these processes to their ends.
func (c *client) takeAll(ids ...string) {
	c.t.Helper()
	c.take(func() bool {
		for _, id := range ids {
			if !c.of(id).closed {
				return false
			}
		}
		return true
	})
}

// flood is a process that writes n bytes of the pattern.
func flood(n int) process.Spec {
	return spec(testproc.Argv("flood", "-bytes", fmt.Sprint(n))...)
}

// small has a window of 64 KiB, in a log of 128.
func small(s process.Spec) process.Spec {
	s.Output = eventlog.Limits{RetainedBytes: 128 << 10, WindowBytes: 64 << 10, SnapshotBytes: 1 << 10}
	return s
}

// until polls for what nobody tells.
func until(t *testing.T, f *fixture, what string, done func() bool) {
	t.Helper()
	for !done() {
		if f.ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func within(d time.Duration) *time.Duration { return &d }

func TestAttachmentReceivesAllProcesses(t *testing.T) {
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
		if got := string(c.of(id).said); got != id+"\n" {
			t.Errorf("%s said %q", id, got)
		}
	}
}

func TestFirstByteIsNotLostToAnAttachment(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer c.a.Lost()
	const size = 1 << 20
	c.pattern("p")
	c.start("p", small(flood(size)))
	c.takeAll("p")
	if got := c.of("p").out.Offset(); got != size {
		t.Errorf("%d bytes arrived", got)
	}
}

func TestDetachedPolicies(t *testing.T) {
	const size = 3 << 20
	for name, tt := range map[string]struct {
		policy session.WhenDetached
		waits  bool // the process blocks before it has said everything
		gap    bool
	}{
		"block":   {policy: session.WhenDetachedBlock, waits: true},
		"discard": {policy: session.WhenDetachedDiscardOldest, gap: true},
		"spool":   {policy: session.WhenDetachedSpool},
	} {
		for _, way := range []string{"lost", "detached"} {
			t.Run(name+" "+way, func(t *testing.T) {
				f := newFixture(t, session.Config{SpoolBytes: 16 << 20, ClosedRetention: time.Hour})
				c := f.newClient(t, session.AttachRequest{WhenDetached: tt.policy, Grace: within(time.Hour)})
				c.pattern("p")
				p := c.start("p", small(flood(size)))
				c.take(func() bool { return c.of("p").seq > 0 })
				if way == "lost" {
					c.a.Lost()
				} else {
					c.a.Detach()
				}
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
						t.Errorf("%d bytes are declared missing, the end is at %d", s.dropped, total)
					}
				} else if s.dropped != 0 || s.out.Offset() != size {
					t.Errorf("%d bytes are missing, %d arrived", s.dropped, s.out.Offset())
				}
			})
		}
	}
}

func TestGraceOverEndsTheSession(t *testing.T) {
	for _, grace := range []time.Duration{0, 30 * time.Millisecond} {
		t.Run(grace.String(), func(t *testing.T) {
			f := newFixture(t, session.Config{})
			c := f.newClient(t, session.AttachRequest{Grace: &grace})
			p := c.start("p", spec(testproc.Argv("ignore-term")...))
			q := c.start("q", small(flood(1<<20)))
			c.a.Lost()
			<-p.Closed()
			<-q.Closed() // though nobody has taken what it said
			if exit, _ := p.Exit(); exit.Cause != process.CauseTerminated {
				t.Errorf("exit is %+v", exit)
			}
			wantKind(t, c.tryAttach(session.AttachRequest{}), session.SessionNotFound)
			until(t, f, "the session is gone", func() bool {
				list, _ := f.registry.Sessions("tester", "", 10)
				return len(list) == 0
			})
		})
	}
}

func TestCloseSession(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	p := c.start("p", spec("/bin/cat"))
	owned, _, err := c.a.Session().StartOwned(f.ctx, "owned", session.Digest{2}, spec("/bin/cat"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.registry.CloseSession(f.ctx, "stranger", c.id); err == nil {
		t.Error("a stranger closed the session")
	}
	if err := f.registry.CloseSession(f.ctx, "tester", c.id); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*session.Process{p, owned.Process()} {
		select {
		case <-p.Closed():
		default:
			t.Errorf("process %s is left", p.ID())
		}
	}
	_, err = c.a.Next(f.ctx, 0)
	wantKind(t, err, session.SessionClosed)
	c.a.Lost()
	owned.Lost()
	_, err = c.a.Session().Process("p")
	wantKind(t, err, session.ProcessNotFound)
	_, _, err = c.a.Session().Start(f.ctx, "late", session.Digest{3}, spec("/bin/true"))
	wantKind(t, err, session.SessionClosed)
	wantKind(t, f.registry.CloseSession(f.ctx, "tester", c.id), session.SessionNotFound)
}

func TestCloseSessionGoesOnWithoutItsCaller(t *testing.T) {
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

func TestDefaultSessionComesBackEmpty(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
		t.Fatal(err)
	}
	<-p.Closed()
	again, err := f.registry.Open("tester", session.DefaultID)
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := again.Processes("", 10); len(list) != 0 {
		t.Errorf("%d processes are left", len(list))
	}
	if _, _, err := again.Start(f.ctx, "p", session.Digest{1}, spec("/bin/true")); err != nil {
		t.Error(err)
	}
	if err := f.registry.CloseSession(f.ctx, "nobody", ""); err != nil {
		t.Errorf("closing what is not there: %v", err)
	}
}

func TestStreamTakesProcessFromTheFeedAndGivesItBack(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	p := c.start("p", spec(testproc.Argv("echo")...))
	write := func(text string) {
		t.Helper()
		if err := p.WriteStdinOnce(f.ctx, "", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one ")
	c.take(func() bool { return string(c.of("p").said) == "one " })
	o, err := p.Own(f.ctx, c.of("p").seq, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.next(); d.Released != p {
		t.Fatalf("the feed says %+v", d)
	}
	write("two ")
	batch, err := o.Next(f.ctx, 0)
	if err != nil || string(batch.Events[0].Data) != "two " {
		t.Fatalf("the stream reads %v, %v", batch, err)
	}
	if err := c.a.Acknowledge("p", batch.Events[0].Seq); err != nil {
		t.Error(err)
	}
	if acked := p.Log().Stats().Acknowledged; acked >= batch.Events[0].Seq {
		t.Error("the attachment acknowledged what it does not own")
	}
	o.Detach() // without having acknowledged
	c.take(func() bool { return strings.HasSuffix(string(c.of("p").said), "two ") })
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	c.takeAll("p")
	if got := string(c.of("p").said); got != "one two end of input\n" {
		t.Errorf("the attachment heard %q", got)
	}
}

func TestOwnedStartIsNotInTheFeed(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	o, created, err := c.a.Session().StartOwned(f.ctx, "p", session.Digest{1}, spec("/bin/echo", "x"), nil)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	<-o.Process().Closed()
	c.start("q", spec("/bin/true"))
	c.takeAll("q")
	if c.seen["p"] != nil {
		t.Error("the feed has what a stream owns")
	}
	o.Detach()
	c.takeAll("p")
}

// A process that says more than is kept, before anybody can have looked.
func TestFirstByteIsNotLostToAStream(t *testing.T) {
	f := newFixture(t, session.Config{})
	const size = 1 << 20
	for i := range 5 {
		o, _, err := f.StartOwned(f.ctx, fmt.Sprint(i), session.Digest{1}, small(flood(size)), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, f: f, seen: make(map[string]*seen)}
		c.pattern(o.Process().ID())
		for s := c.of(o.Process().ID()); !s.closed; {
			batch, err := o.Next(f.ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			c.check(session.Delivery{Process: o.Process(), Batch: batch})
			if err := o.Acknowledge(s.seq); err != nil {
				t.Fatal(err)
			}
		}
		o.Detach()
	}
}

func TestOwnerThatIsGoneWhenItsProcessStartsIsLost(t *testing.T) {
	f := newFixture(t, session.Config{})
	gone, cancel := context.WithCancelCause(f.ctx)
	go cancel(errors.New("gone"))
	for i := range 50 {
		id := fmt.Sprint(i)
		o, created, err := f.StartOwned(gone, id, session.Digest{1}, spec("/bin/cat"), within(0))
		if err == nil {
			o.Lost()
		}
		if p, missing := f.Session.Process(id); missing == nil {
			<-p.Closed() // or a process runs that nobody will ever end
		} else if created && err == nil {
			t.Errorf("a process that was started is missing: %v", missing)
		}
	}
}

func TestLosslessWatcherStaysOutOfLeasedSessions(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedDiscardOldest, Grace: within(time.Hour)})
	p := c.start("p", spec("/bin/cat"))
	for range 2 {
		_, err := p.OwnLossless(f.ctx, 0)
		wantKind(t, err, session.ProcessOwned)
		c.a.Lost() // and may come back
	}
}

// Streams come and go while the attachment does not read: what it is to be told
// must not pile up.
func TestReleasesDoNotPileUp(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	p := c.start("p", spec(testproc.Argv("echo")...))
	for range 100 {
		o, err := p.Own(f.ctx, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Detach()
	}
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	released := 0
	for !c.of("p").closed {
		if d := c.next(); d.Released != nil {
			released++
		}
	}
	if released != 1 {
		t.Errorf("the feed says %d times that the process left it", released)
	}
	if readers := p.Log().Stats().Readers; readers != 1 {
		t.Errorf("%d readers are left", readers)
	}
}

func TestStreamsGraceEndsItsProcessIntoTheFeed(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	o, _, err := c.a.Session().StartOwned(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), within(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	o.Lost()
	c.takeAll("p")
	if exit, _ := o.Process().Exit(); exit.Cause != process.CauseTerminated {
		t.Errorf("exit is %+v", exit)
	}
}

func TestClosedRecordsStayUntilTheyAreTaken(t *testing.T) {
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond})
	c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
	p := c.start("p", spec("/bin/echo", "x"))
	c.a.Lost()
	f.registry.Drained(p)
	time.Sleep(20 * time.Millisecond) // for a record that goes although it must not
	c.attach(session.AttachRequest{})
	c.takeAll("p")
	if got := string(c.of("p").said); got != "x\n" {
		t.Errorf("p said %q", got)
	}
	until(t, f, "the record goes once it was taken", func() bool {
		_, err := c.a.Session().Process("p")
		return err != nil
	})
	c.a.Lost()
}
