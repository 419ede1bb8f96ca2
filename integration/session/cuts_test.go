package session

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
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

const sessionsPerTransport = 10

// Attachments are cut many times, in a soak ten thousand times, at any point: before they are
// granted, while they wait for another response, between messages. Nevertheless every byte of
// every process arrives once and in order, with the right totals, and nothing remains.
func TestSessions_ManyCuts_LoseNothing(t *testing.T) {
	harness.Slow(t)
	cutsPerTransport := int64(1000)
	if harness.Soak() {
		cutsPerTransport = 5000
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	for _, d := range []harness.Transport{harness.InProcess, harness.UnixTransport} {
		t.Run(string(d), func(t *testing.T) {
			server := harness.NewServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 })
			var left, cuts, mid, contests atomic.Int64
			left.Store(cutsPerTransport)
			var working sync.WaitGroup
			for i := range sessionsPerTransport {
				c := &cutter{Scenario: harness.NewScenario(t, server, d), random: rand.New(rand.NewPCG(seed, uint64(i))), left: &left}
				working.Go(func() {
					c.work()
					cuts.Add(c.cuts)
					mid.Add(c.mid)
					contests.Add(c.contests)
				})
			}
			working.Wait()
			t.Logf("%d cuts, of which %d before the lease was granted and %d while somebody else had it", cuts.Load(), mid.Load(), contests.Load())
			if cuts.Load() < cutsPerTransport || mid.Load() == 0 || contests.Load() == 0 {
				t.Errorf("there were %d cuts, want %d", cuts.Load(), cutsPerTransport)
			}
		})
	}
}

// cutter attaches to a session of its own and cuts, until all cuts are done.
type cutter struct {
	*harness.Scenario
	random *rand.Rand
	left   *atomic.Int64
	a      *harness.Attached
	feeds  []*checked

	cuts, mid, contests int64
}

// checked is a process whose output is compared as it arrives.
type checked struct {
	*harness.Feed
	verifiers map[execwirev1.OutputStream]*testproc.Verifier
}

func (c *cutter) work() {
	c.a = c.Lease(harness.WithLeaseGrace(harness.StepTimeout))
	for _, argv := range [][]string{
		harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-stderr", fmt.Sprint(uint64(1)<<50)),
		harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-chunk", "100"),
	} {
		c.feeds = append(c.feeds, &checked{Feed: runAttached(c.a, argv), verifiers: map[execwirev1.OutputStream]*testproc.Verifier{
			harness.StdoutOf: testproc.StdoutPattern.NewVerifier(), harness.StderrOf: testproc.StderrPattern.NewVerifier()}})
	}
	c.takeOver()
	for c.left.Add(-1) >= 0 {
		switch n := c.random.IntN(100); {
		case n < 5 && c.Proxy != nil:
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

// take receives events and checks them.
func (c *cutter) take() {
	c.Helper()
	for _, f := range c.feeds {
		if len(f.Waiting) > 0 {
			f.Step()
		}
		for stream, data := range f.Output {
			if _, err := f.verifiers[stream].Write(data); err != nil {
				c.Fatalf("%v of %s: %v", stream, f.ID, err)
			}
			f.Output[stream] = nil
		}
		if f.Dropped > 0 {
			c.Fatalf("%d bytes of %s were dropped", f.Dropped, f.ID)
		}
	}
}

// again attaches. While the server still receives the last messages of a stream that was cut,
// they count as a response to its ping.
func (c *cutter) again() {
	c.Helper()
	var err error
	harness.Eventually(c, "the session is free", func() bool {
		err = c.a.TryAttach(harness.WithLeaseGrace(harness.StepTimeout))
		return harness.ReasonOf(err) != "SESSION_ATTACHED" && status.Code(err) != codes.Unavailable // or the wire
	})
	if err != nil || !c.a.Response.GetResumed() {
		c.Fatalf("attaching again: %v, %v", err, c.a.Response)
	}
}

// cutBetweenMessages receives a few messages and breaks the stream. It acknowledges some of
// them, so that never all windows are used up: then there would be no next message.
func (c *cutter) cutBetweenMessages() {
	c.Helper()
	for range c.random.IntN(6) {
		if !slices.ContainsFunc(c.feeds, func(f *checked) bool { return len(f.Waiting) == 0 }) {
			c.take()
		}
		if err := next(c.a); err != nil {
			c.Fatalf("the feed ended with %v", err)
		}
		if c.random.IntN(3) > 0 {
			c.take()
		}
	}
	c.a.Leave(harness.ErrDisconnect)
	c.again()
}

// cutTheWire breaks the connection in the middle of a frame.
func (c *cutter) cutTheWire() {
	c.Helper()
	c.take()
	c.Proxy.Cut()
	c.again()
}

// takeOver takes the session from an attachment that does not respond, and is cut right after.
func (c *cutter) takeOver() {
	c.Helper()
	dead := c.a.Stream
	c.again()
	c.a.Leave(harness.ErrDisconnect)
	for {
		if _, err := dead.Recv(); err != nil {
			c.ExpectReason(err, "SESSION_TAKEN_OVER")
			break
		}
	}
	c.again()
}

// cutWhileAttaching breaks streams that are not granted yet.
func (c *cutter) cutWhileAttaching() {
	c.Helper()
	c.a.Leave(harness.ErrDisconnect)
	c.abortAttach(time.Duration(c.random.IntN(300)) * time.Microsecond)
	c.mid++
	c.again()
}

// cutAContender breaks a stream that waits for the holder's response, and then the holder.
func (c *cutter) cutAContender() {
	c.Helper()
	c.abortAttach(time.Duration(c.random.IntN(2000)) * time.Microsecond)
	c.contests++
	c.a.Leave(harness.ErrDisconnect)
	c.again()
}

// abortAttach requests the lease and cancels after a while. It has no cursors, so a grant does
// not acknowledge anything.
func (c *cutter) abortAttach(after time.Duration) {
	c.Helper()
	ctx, cancel := context.WithCancelCause(c.Ctx)
	defer time.AfterFunc(after, func() { cancel(harness.ErrDisconnect) }).Stop()
	defer cancel(harness.ErrDisconnect)
	stream, err := c.Leases.AttachSession(ctx)
	if err != nil {
		return
	}
	_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{
		Attach: &execwirev1.SessionAttach{SessionId: c.Session}}})
	for {
		if _, err := stream.Recv(); err != nil {
			if reason := harness.ReasonOf(err); ctx.Err() == nil && reason != "SESSION_ATTACHED" {
				c.Errorf("an attach was refused with %v", err)
			}
			return
		}
	}
}

// finish ends the processes and receives all remaining events.
func (c *cutter) finish() {
	c.Helper()
	for _, f := range c.feeds {
		if _, err := c.Processes.TerminateProcess(c.Ctx, &execwirev1.TerminateProcessRequest{
			SessionId: c.Session, ProcessId: f.ID, Termination: harness.Forced}); err != nil {
			c.Fatalf("TerminateProcess: %v", err)
		}
	}
	for _, f := range c.feeds {
		for f.Totals == nil {
			if len(f.Waiting) == 0 {
				if err := next(c.a); err != nil {
					c.Fatalf("the feed ended with %v", err)
				}
			}
			c.take()
		}
		c.ExpectEnd(f.Exit, 0, harness.Sigkill, harness.Terminated)
		for stream, total := range f.Totals {
			if got := f.verifiers[stream].Offset(); got != total || got == 0 && stream == harness.StdoutOf {
				c.Errorf("received %d bytes of %v, of %d", got, stream, total)
			}
		}
	}
	closeSession(c.Scenario, c.Session)
	if err := failure(c.a); harness.ReasonOf(err) != "SESSION_CLOSED" && !errors.Is(err, context.Canceled) {
		c.Errorf("closing the session ended the stream with %v", err)
	}
}
