package session

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// other returns another client of the same session, with the same cursors.
func anotherAttachment(a *harness.Attached) *harness.Attached {
	b := &harness.Attached{Scenario: a.Scenario, Feeds: map[string]*harness.Feed{}}
	for id, f := range a.Feeds {
		g := receiveFrom(b, id)
		g.Last = f.Last
		for stream, offset := range f.Offsets {
			g.Offsets[stream] = offset
		}
	}
	return b
}

// receiveUntilClosed reads, and responds to pings, until the process has closed, and returns its
// stdout.
func receiveUntilClosed(f *harness.Feed, a *harness.Attached) string {
	f.T.Helper()
	for f.Totals == nil {
		for _, event := range f.Waiting {
			f.Follower.Check(event)
		}
		f.Waiting = nil
		if f.Totals == nil {
			if err := next(a); err != nil {
				f.T.Errorf("the feed ended with %v", err)
				break
			}
		}
	}
	return string(f.Output[harness.StdoutOf])
}

func TestTakeover_LiveAttachment_IsRejected(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		b := anotherAttachment(a)
		var reading sync.WaitGroup
		reading.Go(func() {
			if said := receiveUntilClosed(p, a); said != "still mine" {
				s.Errorf("the previous holder received %q", said)
			}
		})
		for range 3 {
			s.ExpectReason(b.TryAttach(), "SESSION_ATTACHED")
		}
		s.Write(p.ID, "still mine")
		s.CloseStdin(p.ID)
		reading.Wait()
		if a.Pings == 0 {
			s.Error("the incumbent was never asked")
		}
	})
}

// The SDK responds to pings for a busy caller, and buffers events meanwhile.
func TestTakeover_SDKAnswersPingsWhenIdle(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		session, err := client.New(s.Conn).AttachSession(s.Ctx, client.SessionOptions{})
		if err != nil {
			s.Fatal(err)
		}
		s.Session = session.ID()
		for range 3 {
			s.Start(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
		}
		b := &harness.Attached{Scenario: s, Feeds: map[string]*harness.Feed{}}
		for range 3 {
			s.ExpectReason(b.TryAttach(), "SESSION_ATTACHED")
		}
		if err := session.Detach(s.Ctx); err != nil {
			s.Errorf("Detach: %v", err)
		}
		again(b)
		for id, seq := range session.Cursors() {
			if seq != 0 { // 0 for received events without a reader
				s.Errorf("%s is at %d, though nothing was taken", id, seq)
			}
		}
	})
}

// A client that neither reads nor responds loses its session, even if its stream is full, and
// receives the reason if it reads later.
func TestTakeover_DeadAttachment_IsReplaced(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	harness.WithConfig(t, nil, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
		p.Step()
		q := runAttached(a, harness.Program("echo"), harness.WithStdin)
		p.Silent = true
		b := anotherAttachment(a)
		// While a reads nothing. What it sent before may arrive late, and is a sign of life.
		harness.Eventually(t, "the attachment is dead", func() bool {
			err := b.TryAttach()
			if err != nil && status.Code(err) != codes.FailedPrecondition {
				s.Fatalf("AttachSession: %v", err)
			}
			return err == nil
		})
		for _, f := range []*harness.Feed{receiveFrom(b, q.ID)} {
			s.Write(q.ID, "to the new one")
			f.ExpectOutput(harness.StdoutOf, "to the new one")
		}
		f := receiveFrom(b, p.ID)
		f.Output[harness.StdoutOf] = p.Output[harness.StdoutOf]
		f.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
		f.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)

		a.IgnorePings = true
		s.ExpectReason(failure(a), "SESSION_TAKEN_OVER")
		if described := describeSession(s, s.Session); !described.GetAttached() {
			s.Errorf("after the takeover the session is %v", described)
		}
	})
}

// Any message of a client is a sign of life.
func TestTakeover_AcknowledgmentCountsAsAnAnswer(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		a.IgnorePings = true
		b := anotherAttachment(a)
		var reading sync.WaitGroup
		reading.Go(func() {
			for a.Pings == 0 && next(a) == nil {
			}
			acknowledge(a, p.ID, 0)
		})
		s.ExpectReason(b.TryAttach(), "SESSION_ATTACHED")
		reading.Wait()
	})
}

// Of several contenders for the session of a dead client, one gets it.
func TestTakeover_ManyClients_OneSucceeds(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		var losing, winning sync.WaitGroup
		var won atomic.Int32
		for range 8 {
			b := anotherAttachment(a)
			f := receiveFrom(b, p.ID)
			losing.Add(1)
			winning.Go(func() {
				err := b.TryAttach()
				losing.Done()
				if err != nil {
					s.ExpectReason(err, "SESSION_ATTACHED")
					return
				}
				won.Add(1)
				if said := receiveUntilClosed(f, b); said != "to the winner" {
					s.Errorf("the winner received %q", said)
				}
			})
		}
		losing.Wait()
		s.Write(p.ID, "to the winner")
		s.CloseStdin(p.ID)
		winning.Wait()
		s.ExpectReason(failure(a), "SESSION_TAKEN_OVER")
		if won.Load() != 1 {
			s.Errorf("%d contenders won", won.Load())
		}
	})
}

// The attachment of a client that has silently gone is no obstacle once the server has noticed
// it.
func TestTakeover_LostAttachment_IsReplaced(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		b := anotherAttachment(a)
		disconnect(a)
		again(b)
		if described := b.Response.GetSession(); described.GetWhenDetached() != execwirev1.WhenDetached_WHEN_DETACHED_BLOCK || !described.GetAttached() {
			s.Errorf("the session is described as %v", described)
		}
	})
}

// A client whose network fails silently resumes over another connection.
func TestSession_ReturnBesideASilentConnection_TakesOver(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.NewServer(t, harness.SmallRetention)
			s, other := harness.NewScenario(t, server, d), harness.NewScenario(t, server, d)
			a := s.Lease()
			p := runAttached(a, harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
			for len(p.Output[harness.StdoutOf]) < harness.FloodBytes/4 {
				p.Step()
			}
			s.Proxy.SetStalled(true)
			other.Session = s.Session
			b := anotherAttachment(a)
			b.Scenario = other
			again(b)
			f := receiveFrom(b, p.ID)
			f.Output = p.Output
			f.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
			f.ExpectEnd(other, 0, harness.NoSignal, harness.ByItself)

			s.Proxy.SetStalled(false)
			s.ExpectReason(failure(a), "SESSION_TAKEN_OVER")
		})
	}
}
