package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

// client attaches to one session repeatedly, and checks that it receives everything exactly
// once.
type client struct {
	t         *testing.T
	f         *fixture
	principal string
	id        string // session id
	a         *session.Attachment
	seen      map[string]*seen
	pings     chan struct{}
}

// seen is what a client has received of one process.
type seen struct {
	seq     uint64
	offset  map[eventlog.Stream]uint64
	out     *testproc.Verifier // nil: text collects the output instead
	text    []byte
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

// cursors returns the last sequence number received of each process.
func (c *client) cursors() map[string]uint64 {
	m := make(map[string]uint64)
	for id, s := range c.seen {
		m[id] = s.seq
	}
	return m
}

func (c *client) start(id string, spec process.Spec) *session.Process {
	c.t.Helper()
	p, created, err := c.a.Session().Start(c.f.ctx, id, session.Digest{1}, spec, session.StartOptions{})
	if err != nil || !created {
		c.t.Fatalf("Start = %v, %v", created, err)
	}
	return p
}

// pattern makes the client check the output of a process against the pattern of the program
// flood, instead of collecting it.
func (c *client) pattern(id string) {
	c.of(id).out = testproc.StdoutPattern.NewVerifier()
}

func (c *client) of(id string) *seen {
	if c.seen[id] == nil {
		c.seen[id] = &seen{offset: make(map[eventlog.Stream]uint64)}
	}
	return c.seen[id]
}

// next receives and checks one delivery.
func (c *client) next() session.Delivery {
	c.t.Helper()
	d, err := c.a.Next(c.f.ctx, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.check(d)
	return d
}

// check records a delivery, and fails the test if it is not the expected next one.
func (c *client) check(d session.Delivery) {
	c.t.Helper()
	if d.Released != "" {
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
		s.text = append(s.text, e.Data...)
	} else if _, err := s.out.Write(e.Data); err != nil {
		t.Fatal(err)
	}
}

// take receives and acknowledges deliveries until done.
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

// takeAll receives and acknowledges everything of these processes.
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

// flood returns the spec of a process that writes n bytes of the pattern.
func flood(n int) process.Spec {
	return spec(testproc.Argv("flood", "-bytes", fmt.Sprint(n))...)
}

// small sets a window of 64 KiB in a log of 128 KiB.
func small(s process.Spec) process.Spec {
	s.Output = eventlog.Limits{RetainedBytes: 128 << 10, WindowBytes: 64 << 10, SnapshotBytes: 1 << 10}
	return s
}

// until polls for a condition.
func until(t *testing.T, f *fixture, what string, done func() bool) {
	t.Helper()
	for !done() {
		if f.ctx.Err() != nil {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func within(d time.Duration) *time.Duration { return &d }
