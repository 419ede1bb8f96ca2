package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

func TestStream_TakesProcessFromFeedAndReturnsIt(t *testing.T) {
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
	c.take(func() bool { return string(c.of("p").text) == "one " })
	o, err := p.Own(f.ctx, c.of("p").seq, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.next(); d.Released != "p" {
		t.Fatalf("the feed delivers %+v", d)
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
		t.Error("the attachment acknowledged a process that it does not own")
	}
	o.Detach() // without an acknowledgement
	c.take(func() bool { return strings.HasSuffix(string(c.of("p").text), "two ") })
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	c.takeAll("p")
	if got := string(c.of("p").text); got != "one two end of input\n" {
		t.Errorf("the attachment received %q", got)
	}
}

func TestStartOwned_IsNotInFeed(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	o, created, err := c.a.Session().StartOwned(f.ctx, "p", session.Digest{1}, spec("/bin/echo", "x"), session.StartOptions{}, nil)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	<-o.Process().Closed()
	c.start("q", spec("/bin/true"))
	c.takeAll("q")
	if c.seen["p"] != nil {
		t.Error("the feed has a process that a stream owns")
	}
	o.Detach()
	c.takeAll("p")
}

func TestStartOwned_FirstByte_IsNotLost(t *testing.T) {
	f := newFixture(t, session.Config{})
	const size = 1 << 20
	for i := range 5 {
		o, _, err := f.StartOwned(f.ctx, fmt.Sprint(i), session.Digest{1}, small(flood(size)), session.StartOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !o.Process().Spec().Output.Held {
			t.Fatal("output could be evicted between the start and the ownership")
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

func TestStartOwned_CallerCancelled_OwnerIsLost(t *testing.T) {
	f := newFixture(t, session.Config{})
	gone, cancel := context.WithCancelCause(f.ctx)
	go cancel(errors.New("gone"))
	for i := range 50 {
		id := fmt.Sprint(i)
		o, created, err := f.StartOwned(gone, id, session.Digest{1}, spec("/bin/cat"), session.StartOptions{}, within(0))
		if err == nil {
			o.Lost()
		}
		if p, missing := f.Session.Process(id); missing == nil {
			<-p.Closed() // otherwise the process would never end
		} else if created && err == nil {
			t.Errorf("the started process is missing: %v", missing)
		}
	}
}

func TestFeed_RepeatedReleases_AreReportedOnce(t *testing.T) {
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
		if d := c.next(); d.Released != "" {
			released++
		}
	}
	if released != 1 {
		t.Errorf("the feed reports the release %d times", released)
	}
	if readers := p.Log().Stats().Readers; readers != 1 {
		t.Errorf("%d readers remain", readers)
	}
}

func TestStream_GraceExpires_FeedDeliversEnd(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	defer func() { c.a.Lost() }()
	o, _, err := c.a.Session().StartOwned(f.ctx, "p", session.Digest{1}, spec("/bin/cat"), session.StartOptions{}, within(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	o.Lost()
	c.takeAll("p")
	if exit, _ := o.Process().Exit(); exit.Cause != process.CauseTerminated {
		t.Errorf("exit is %+v", exit)
	}
}

// A client that resumes must receive a release if a stream has advanced a process, because
// the next events of the process do not follow those that the client has.
func TestAttach_StreamAdvancedBefore_ReportsRelease(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			f := newFixture(t, session.Config{})
			c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
			defer func() { c.a.Lost() }()
			p := c.start("p", spec(testproc.Argv("echo")...))
			if err := p.WriteStdinOnce(f.ctx, "", []byte("one ")); err != nil {
				t.Fatal(err)
			}
			c.take(func() bool { return string(c.of("p").text) == "one " })
			c.a.Lost()
			o, err := p.Own(f.ctx, c.of("p").seq, within(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				o.Lost()
			}
			c.attach(session.AttachRequest{AfterSeq: c.cursors()})
			ctx, cancel := context.WithTimeoutCause(f.ctx, time.Minute, errors.New("the feed delivers nothing"))
			defer cancel()
			if d, err := c.a.Next(ctx, 0); err != nil || d.Released != "p" {
				t.Fatalf("the feed delivers %+v, %v", d, err)
			}
		})
	}
}
