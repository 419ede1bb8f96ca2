package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// flooded attaches to a session with a process that floods on request, and detaches when the
// flood has begun.
func flooded(s *harness.Scenario, options ...harness.Lease) (*harness.Attached, *harness.Feed) {
	s.Helper()
	a := s.Lease(options...)
	p := runAttached(a, harness.Shell(`read line; exec "$@"`), harness.WithStdin, harness.AppendArgs(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes))))
	disconnect(a)
	s.Write(p.ID, "go\n")
	return a, p
}

func TestDetachedSession_Default_Blocks(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		a, p := flooded(s)
		if got := describeSession(s, s.Session).GetWhenDetached(); got != harness.Block {
			s.Errorf("the policy is %v, want to block", got)
		}
		s.ExpectRunning(p.ID)
		again(a)
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if p.Dropped != 0 {
			s.Errorf("%d bytes were dropped", p.Dropped)
		}
	})
}

func TestDetachedSession_Discard_DropsTheOldest(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		a, p := flooded(s, harness.WhenDetached(harness.Discard))
		s.AwaitClosed(p.ID)
		again(a)
		if got := a.Response.GetSession().GetWhenDetached(); got != harness.Discard {
			s.Errorf("attached again, the policy is %v", got)
		}
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		// The follower checks that received and declared bytes add up.
		if got := uint64(len(p.Output[harness.StdoutOf])); p.Dropped == 0 || got+p.Dropped != harness.FloodBytes {
			s.Errorf("received %d bytes and %d are missing, of %d", got, p.Dropped, harness.FloodBytes)
		}
	})
}

// A detached process may write and end; its end is retained as long as the session.
func TestDetachedSession_ExitRecord_IsKept(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(50 * time.Millisecond) }
	harness.WithConfig(t, brief, func(s *harness.Scenario) {
		a := s.Lease(harness.WithLeaseGrace(harness.StepTimeout))
		p := runAttached(a, harness.Shell(`printf before; read line; printf after; exit 4`), harness.WithStdin)
		p.ExpectOutput(harness.StdoutOf, "before")
		disconnect(a)
		s.Write(p.ID, "go on\n")
		s.AwaitClosed(p.ID)
		time.Sleep(300 * time.Millisecond) // several times the retention
		again(a)
		p.ExpectOutput(harness.StdoutOf, "after")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 4, harness.NoSignal, harness.ByItself)
		harness.Eventually(s, "the record is removed once its end was taken", func() bool { return describeSession(s, s.Session).GetProcessCount() == 0 })
	})
}
