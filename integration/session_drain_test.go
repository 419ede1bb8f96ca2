package integration

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
)

// A server that was told to stop lets the processes of sessions finish, and
// their owners return; only nothing new begins.
func TestDrainingLetsSessionsFinish(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(patience) }
	withConfig(t, patient, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		s.server.stop(errStop)
		s.elsewhere(func() {
			eventually(s, "it refuses to start processes", func() bool {
				_, err := s.processes.StartProcess(s.ctx, s.request(shell("exit 0")).GetProcess())
				return reasonOf(err) == "DRAINING"
			})
			s.expectReason((&attached{story: s, feeds: map[string]*feed{}}).tryAttach(), "DRAINING")
		})
		a.detach()
		a.again()
		s.write(p.id, "last words")
		s.closeStdin(p.id)
		p.expectOutput(stdoutOf, "last words")
		p.expectEnd(s, 0, noSignal, byItself)
		s.expectReason(a.failure(), "DRAINING")
		s.awaitServed()
	})
}

// What still runs after the shutdown grace is ended, and the attachment is told
// of every end before its own.
func TestASessionIsToldOfTheEndOfTheServer(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(200 * time.Millisecond) }
	withConfig(t, brief, func(s *story) {
		a := s.lease()
		p, q := a.run(program("ignore-term")), a.run(program("ignore-term"))
		p.expectOutput(stdoutOf, "ready\n")
		q.expectOutput(stdoutOf, "ready\n")
		s.server.stop(errStop)
		p.expectEnd(s, 0, sigkill, byShutdown)
		q.expectEnd(s, 0, sigkill, byShutdown)
		s.expectReason(a.failure(), "DRAINING")
		s.awaitServed()
	})
}
