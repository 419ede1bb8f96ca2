package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

const (
	cutsPerDoor     = 5000
	sessionsPerDoor = 10
)

// Attachments are cut ten thousand times, anywhere: before they are granted,
// while they wait for somebody else's answer, between any two messages. Every
// byte of every process comes once and in order all the same, up to an end that
// adds up, and nothing is left of it.
func TestTenThousandCutsLoseNothing(t *testing.T) {
	slow(t)
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	for _, d := range []door{inProcess, unixDoor} {
		t.Run(string(d), func(t *testing.T) {
			server := newServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 })
			var left, cuts, mid, contests atomic.Int64
			left.Store(cutsPerDoor)
			var working sync.WaitGroup
			for i := range sessionsPerDoor {
				c := &cutter{story: newStory(t, server, d), random: rand.New(rand.NewPCG(seed, uint64(i))), left: &left}
				working.Go(func() {
					c.work()
					cuts.Add(c.cuts)
					mid.Add(c.mid)
					contests.Add(c.contests)
				})
			}
			working.Wait()
			t.Logf("%d cuts, of which %d before the lease was granted and %d while somebody else had it", cuts.Load(), mid.Load(), contests.Load())
			if cuts.Load() < cutsPerDoor || mid.Load() == 0 || contests.Load() == 0 {
				t.Errorf("there were %d cuts, want %d", cuts.Load(), cutsPerDoor)
			}
		})
	}
}

// cutter attaches to a session of its own and cuts, until the cuts are used up.
type cutter struct {
	*story
	random *rand.Rand
	left   *atomic.Int64
	a      *attached
	feeds  []*checked

	cuts, mid, contests int64
}

// checked is a process whose output is compared as it comes.
type checked struct {
	*feed
	verifiers map[execwirev1.OutputStream]*testproc.Verifier
}

func (c *cutter) work() {
	c.a = c.lease(keep(patience))
	for _, argv := range [][]string{
		program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-stderr", fmt.Sprint(uint64(1)<<50)),
		program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-chunk", "100"),
	} {
		c.feeds = append(c.feeds, &checked{feed: c.a.run(argv), verifiers: map[execwirev1.OutputStream]*testproc.Verifier{
			stdoutOf: testproc.StdoutPattern.NewVerifier(), stderrOf: testproc.StderrPattern.NewVerifier()}})
	}
	c.takeOver()
	for c.left.Add(-1) >= 0 {
		switch n := c.random.IntN(100); {
		case n < 5 && c.wire != nil:
			c.cutTheWire()
		case n < 70:
			c.cutBetweenMessages()
		case n < 85:
			c.cutWhileAttaching()
		default:
			c.cutAContender()
		}
		c.cuts++
	}
	c.finish()
}

// take takes what came, and checks it.
func (c *cutter) take() {
	c.Helper()
	for _, f := range c.feeds {
		if len(f.waiting) > 0 {
			f.step()
		}
		for stream, data := range f.output {
			if _, err := f.verifiers[stream].Write(data); err != nil {
				c.Fatalf("%v of %s: %v", stream, f.id, err)
			}
			f.output[stream] = nil
		}
		if f.dropped > 0 {
			c.Fatalf("%d bytes of %s were dropped", f.dropped, f.id)
		}
	}
}

// again attaches. As long as the server hears the last words of a stream that
// was cut, they count as an answer of its client.
func (c *cutter) again() {
	c.Helper()
	var err error
	eventually(c, "the session is free", func() bool {
		err = c.a.tryAttach(keep(patience))
		return reasonOf(err) != "SESSION_ATTACHED" && status.Code(err) != codes.Unavailable // or the wire
	})
	if err != nil || !c.a.told.GetResumed() {
		c.Fatalf("attaching again: %v, %v", err, c.a.told)
	}
}

// cutBetweenMessages takes a few messages and breaks the stream. Not all of them are
// acknowledged, but never all windows left to be used up: there would be no next message.
func (c *cutter) cutBetweenMessages() {
	c.Helper()
	for range c.random.IntN(6) {
		if !slices.ContainsFunc(c.feeds, func(f *checked) bool { return len(f.waiting) == 0 }) {
			c.take()
		}
		if err := c.a.next(); err != nil {
			c.Fatalf("the feed ended with %v", err)
		}
		if c.random.IntN(3) > 0 {
			c.take()
		}
	}
	c.a.leave(errDisconnect)
	c.again()
}

// cutTheWire breaks the connection, in whatever frame is on its way.
func (c *cutter) cutTheWire() {
	c.Helper()
	c.take()
	c.wire.cut()
	c.again()
}

// takeOver takes the session from an attachment that does not answer, and is
// cut right after that.
func (c *cutter) takeOver() {
	c.Helper()
	dead := c.a.stream
	c.again()
	c.a.leave(errDisconnect)
	for {
		if _, err := dead.Recv(); err != nil {
			c.expectReason(err, "SESSION_TAKEN_OVER")
			break
		}
	}
	c.again()
}

// cutWhileAttaching breaks streams that were not granted yet.
func (c *cutter) cutWhileAttaching() {
	c.Helper()
	c.a.leave(errDisconnect)
	c.abortAttach(time.Duration(c.random.IntN(300)) * time.Microsecond)
	c.mid++
	c.again()
}

// cutAContender breaks a stream that waits for the holder's answer, and then
// the holder.
func (c *cutter) cutAContender() {
	c.Helper()
	c.abortAttach(time.Duration(c.random.IntN(2000)) * time.Microsecond)
	c.contests++
	c.a.leave(errDisconnect)
	c.again()
}

// abortAttach asks for the lease and goes away after a while. Cursors are left
// out, so that it cannot acknowledge anything by being granted.
func (c *cutter) abortAttach(after time.Duration) {
	c.Helper()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer time.AfterFunc(after, func() { cancel(errDisconnect) }).Stop()
	defer cancel(errDisconnect)
	stream, err := c.leases.AttachSession(ctx)
	if err != nil {
		return
	}
	_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{
		Attach: &execwirev1.SessionAttach{SessionId: c.session}}})
	for {
		if _, err := stream.Recv(); err != nil {
			if reason := reasonOf(err); ctx.Err() == nil && reason != "SESSION_ATTACHED" {
				c.Errorf("an attach was refused with %v", err)
			}
			return
		}
	}
}

// finish ends the processes and takes all that is left of them.
func (c *cutter) finish() {
	c.Helper()
	for _, f := range c.feeds {
		if _, err := c.processes.TerminateProcess(c.ctx, &execwirev1.TerminateProcessRequest{
			SessionId: c.session, ProcessId: f.id, Termination: forced}); err != nil {
			c.Fatalf("TerminateProcess: %v", err)
		}
	}
	for _, f := range c.feeds {
		for f.totals == nil {
			if len(f.waiting) == 0 {
				if err := c.a.next(); err != nil {
					c.Fatalf("the feed ended with %v", err)
				}
			}
			c.take()
		}
		c.expectEnd(f.exit, 0, sigkill, terminated)
		for stream, total := range f.totals {
			if got := f.verifiers[stream].Offset(); got != total || got == 0 && stream == stdoutOf {
				c.Errorf("%d bytes of %v came, of %d", got, stream, total)
			}
		}
	}
	c.closeSession(c.session)
	if err := c.a.failure(); reasonOf(err) != "SESSION_CLOSED" && !errors.Is(err, context.Canceled) {
		c.Errorf("closing the session ended the stream with %v", err)
	}
}
