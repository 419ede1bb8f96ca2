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
	if d := c.next(); d.Released != "p" {
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

func TestFirstByteIsNotLostToAStream(t *testing.T) {
	f := newFixture(t, session.Config{})
	const size = 1 << 20
	for i := range 5 {
		o, _, err := f.StartOwned(f.ctx, fmt.Sprint(i), session.Digest{1}, small(flood(size)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !o.Process().Spec().Output.Held {
			t.Fatal("between the start and the ownership output could be evicted")
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
		if d := c.next(); d.Released != "" {
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

// A client that returns must learn that a stream has moved a process on, or what
// it gets when the process comes back does not follow what it had.
func TestAttachmentIsToldWhatAStreamTookBeforeIt(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			f := newFixture(t, session.Config{})
			c := f.newClient(t, session.AttachRequest{Grace: within(time.Hour)})
			defer func() { c.a.Lost() }()
			p := c.start("p", spec(testproc.Argv("echo")...))
			if err := p.WriteStdinOnce(f.ctx, "", []byte("one ")); err != nil {
				t.Fatal(err)
			}
			c.take(func() bool { return string(c.of("p").said) == "one " })
			c.a.Lost()
			o, err := p.Own(f.ctx, c.of("p").seq, within(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				o.Lost()
			}
			c.attach(session.AttachRequest{AfterSeq: c.cursors()})
			ctx, cancel := context.WithTimeoutCause(f.ctx, time.Minute, errors.New("the feed says nothing"))
			defer cancel()
			if d, err := c.a.Next(ctx, 0); err != nil || d.Released != "p" {
				t.Fatalf("the feed says %+v, %v", d, err)
			}
		})
	}
}
