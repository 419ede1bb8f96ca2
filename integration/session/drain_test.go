package session

import (
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// A draining server lets the processes of sessions finish and their owners resume, and starts
// nothing new.
func TestDrain_SessionsFinish(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(harness.StepTimeout) }
	harness.WithConfig(t, patient, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Server.Stop(harness.ErrStop)
		s.Elsewhere(func() {
			harness.Eventually(s, "it refuses to start processes", func() bool {
				_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Shell("exit 0")).GetProcess())
				return harness.ReasonOf(err) == "DRAINING"
			})
			s.ExpectReason((&harness.Attached{Scenario: s, Feeds: map[string]*harness.Feed{}}).TryAttach(), "DRAINING")
		})
		detach(a)
		again(a)
		s.Write(p.ID, "last words")
		s.CloseStdin(p.ID)
		p.ExpectOutput(harness.StdoutOf, "last words")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		s.ExpectReason(failure(a), "DRAINING")
		s.AwaitStopped()
	})
}

// What still runs after the shutdown grace is killed, and the attachment is notified
// of every end before its own.
func TestSession_ServerEnds_IsNotified(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(200 * time.Millisecond) }
	harness.WithConfig(t, brief, func(s *harness.Scenario) {
		a := s.Lease()
		p, q := runAttached(a, harness.Program("ignore-term")), runAttached(a, harness.Program("ignore-term"))
		p.ExpectOutput(harness.StdoutOf, "ready\n")
		q.ExpectOutput(harness.StdoutOf, "ready\n")
		s.Server.Stop(harness.ErrStop)
		p.ExpectEnd(s, 0, harness.Sigkill, harness.ByShutdown)
		q.ExpectEnd(s, 0, harness.Sigkill, harness.ByShutdown)
		s.ExpectReason(failure(a), "DRAINING")
		s.AwaitStopped()
	})
}
