package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// flooded attaches to a session with a process that floods once it is told to,
// and leaves it when it has begun.
func (s *story) flooded(options ...lease) (*attached, *feed) {
	s.Helper()
	a := s.lease(options...)
	p := a.run(shell(`read line; exec "$@"`), stdin, appendArgs(program("flood", "-bytes", fmt.Sprint(floodBytes))))
	a.disconnect()
	s.write(p.id, "go\n")
	return a, p
}

func TestADetachedSessionBlocksByDefault(t *testing.T) {
	withConfig(t, small, func(s *story) {
		a, p := s.flooded()
		if got := s.describe(s.session).GetWhenDetached(); got != block {
			s.Errorf("the policy is %v, want to block", got)
		}
		s.awaitExitNever(p.id)
		a.again()
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.dropped != 0 {
			s.Errorf("%d bytes were dropped", p.dropped)
		}
	})
}

func TestADetachedSessionCanDiscard(t *testing.T) {
	withConfig(t, small, func(s *story) {
		a, p := s.flooded(whenDetached(discard))
		s.awaitClosed(p.id)
		a.again()
		if got := a.told.GetSession().GetWhenDetached(); got != discard {
			s.Errorf("attached again, the policy is %v", got)
		}
		p.expectEnd(s, 0, noSignal, byItself)
		// The follower checks that what came and what was declared add up.
		if got := uint64(len(p.output[stdoutOf])); p.dropped == 0 || got+p.dropped != floodBytes {
			s.Errorf("%d bytes came and %d are missing, of %d", got, p.dropped, floodBytes)
		}
	})
}

func TestADetachedSessionCanSpool(t *testing.T) {
	withConfig(t, small, func(s *story) {
		a, p := s.flooded(whenDetached(spool))
		s.awaitClosed(p.id)
		a.again()
		for len(p.output[stdoutOf]) < floodBytes/2 {
			p.step()
		}
		a.disconnect() // in the middle of what was spooled
		a.again()
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.dropped != 0 {
			s.Errorf("%d bytes were dropped", p.dropped)
		}
		// What was spooled and taken is behind it: more is live.
		q := a.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		q.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
	})
}

func TestASpoolIsBounded(t *testing.T) {
	bounded := func(cfg *config.Config) { small(cfg); cfg.Spool = 1 << 20 }
	withConfig(t, bounded, func(s *story) {
		a, p := s.flooded(whenDetached(spool))
		s.awaitExitNever(p.id)
		a.again()
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.dropped != 0 {
			s.Errorf("%d bytes were dropped", p.dropped)
		}
	})
}

// What is detached may speak and end; its end is kept as long as the session.
func TestAnEndWhileDetachedIsKept(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(50 * time.Millisecond) }
	withConfig(t, brief, func(s *story) {
		a := s.lease(keep(patience))
		p := a.run(shell(`printf before; read line; printf after; exit 4`), stdin)
		p.expectOutput(stdoutOf, "before")
		a.disconnect()
		s.write(p.id, "go on\n")
		s.awaitClosed(p.id)
		time.Sleep(300 * time.Millisecond) // several times the retention
		a.again()
		p.expectOutput(stdoutOf, "after")
		p.expectNothingMore()
		p.expectEnd(s, 4, noSignal, byItself)
		eventually(s, "the record is removed once its end was taken", func() bool { return s.describe(s.session).GetProcessCount() == 0 })
	})
}
