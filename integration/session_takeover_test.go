package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

// other is another client of the same session, which has taken the same.
func (a *attached) other() *attached {
	b := &attached{story: a.story, feeds: map[string]*feed{}}
	for id, f := range a.feeds {
		g := b.feed(id)
		g.last = f.last
		for stream, offset := range f.offsets {
			g.offsets[stream] = offset
		}
	}
	return b
}

// untilClosed reads, and answers pings, until the process has closed, and returns
// what it said on stdout.
func (f *feed) untilClosed(a *attached) string {
	f.t.Helper()
	for f.totals == nil {
		for _, event := range f.waiting {
			f.follower.take(event)
		}
		f.waiting = nil
		if f.totals == nil {
			if err := a.next(); err != nil {
				f.t.Errorf("the feed ended with %v", err)
				break
			}
		}
	}
	return string(f.output[stdoutOf])
}

func TestALiveAttachmentKeepsItsSession(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		b := a.other()
		var reading sync.WaitGroup
		reading.Go(func() {
			if said := p.untilClosed(a); said != "still mine" {
				s.Errorf("the incumbent was told %q", said)
			}
		})
		for range 3 {
			s.expectReason(b.tryAttach(), "SESSION_ATTACHED")
		}
		s.write(p.id, "still mine")
		s.closeStdin(p.id)
		reading.Wait()
		if a.pings == 0 {
			s.Error("the incumbent was never asked")
		}
	})
}

// The SDK answers for a caller that is busy, and holds what came meanwhile.
func TestTheSDKAnswersWhileNobodyListens(t *testing.T) {
	withConfig(t, small, func(s *story) {
		session, err := client.New(s.conn).AttachSession(s.ctx, client.SessionOptions{})
		if err != nil {
			s.Fatal(err)
		}
		s.session = session.ID()
		for range 3 {
			s.start(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		}
		b := &attached{story: s, feeds: map[string]*feed{}}
		for range 3 {
			s.expectReason(b.tryAttach(), "SESSION_ATTACHED")
		}
		if err := session.Detach(s.ctx); err != nil {
			s.Errorf("Detach: %v", err)
		}
		b.again()
		for id, seq := range session.Cursors() {
			if seq != 0 { // of what was received and not taken it is 0
				s.Errorf("%s is at %d, though nothing was taken", id, seq)
			}
		}
	})
}

// A client that neither reads nor answers loses its session, however full its
// stream is, and is told so should it come to.
func TestADeadAttachmentIsTakenOver(t *testing.T) {
	slow(t)
	waits(t)
	withConfig(t, nil, func(s *story) {
		a := s.lease()
		p := a.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		p.step()
		q := a.run(program("echo"), stdin)
		p.silent = true
		b := a.other()
		// While a reads nothing. What it said before may be heard late, and is a sign of life.
		eventually(t, "the attachment is dead", func() bool {
			err := b.tryAttach()
			if err != nil && status.Code(err) != codes.FailedPrecondition {
				s.Fatalf("AttachSession: %v", err)
			}
			return err == nil
		})
		for _, f := range []*feed{b.feed(q.id)} {
			s.write(q.id, "to the new one")
			f.expectOutput(stdoutOf, "to the new one")
		}
		f := b.feed(p.id)
		f.output[stdoutOf] = p.output[stdoutOf]
		f.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		f.expectEnd(s, 0, noSignal, byItself)

		a.deaf = true
		s.expectReason(a.failure(), "SESSION_TAKEN_OVER")
		if described := s.describe(s.session); !described.GetAttached() {
			s.Errorf("after the takeover the session is %v", described)
		}
	})
}

// Whatever a client says is a sign of life.
func TestAcknowledgingIsAnAnswer(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		a.deaf = true
		b := a.other()
		var reading sync.WaitGroup
		reading.Go(func() {
			for a.pings == 0 && a.next() == nil {
			}
			a.acknowledge(p.id, 0)
		})
		s.expectReason(b.tryAttach(), "SESSION_ATTACHED")
		reading.Wait()
	})
}

// Of several that want a session whose client is dead, one gets it.
func TestOneOfManyTakesOver(t *testing.T) {
	slow(t)
	waits(t)
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		var losing, winning sync.WaitGroup
		var won atomic.Int32
		for range 8 {
			b := a.other()
			f := b.feed(p.id)
			losing.Add(1)
			winning.Go(func() {
				err := b.tryAttach()
				losing.Done()
				if err != nil {
					s.expectReason(err, "SESSION_ATTACHED")
					return
				}
				won.Add(1)
				if said := f.untilClosed(b); said != "to the winner" {
					s.Errorf("the winner was told %q", said)
				}
			})
		}
		losing.Wait()
		s.write(p.id, "to the winner")
		s.closeStdin(p.id)
		winning.Wait()
		s.expectReason(a.failure(), "SESSION_TAKEN_OVER")
		if won.Load() != 1 {
			s.Errorf("%d contenders won", won.Load())
		}
	})
}

// An attachment of a client that is gone without a word is no obstacle at all
// once the server has noticed.
func TestALostAttachmentIsNoObstacle(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		b := a.other()
		a.disconnect()
		b.again()
		if described := b.told.GetSession(); described.GetWhenDetached() != execwirev1.WhenDetached_WHEN_DETACHED_BLOCK || !described.GetAttached() {
			s.Errorf("the session is described as %v", described)
		}
	})
}

// A client whose network went silent, which nobody notices, comes back by
// another way.
func TestAClientReturnsBesideASilentConnection(t *testing.T) {
	slow(t)
	waits(t)
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := newServer(t, small)
			s, other := newStory(t, server, d), newStory(t, server, d)
			a := s.lease()
			p := a.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
			for len(p.output[stdoutOf]) < floodBytes/4 {
				p.step()
			}
			s.wire.setStalled(true)
			other.session = s.session
			b := a.other()
			b.story = other
			b.again()
			f := b.feed(p.id)
			f.output = p.output
			f.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
			f.expectEnd(other, 0, noSignal, byItself)

			s.wire.setStalled(false)
			s.expectReason(a.failure(), "SESSION_TAKEN_OVER")
		})
	}
}
