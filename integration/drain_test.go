package integration

import (
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/execwire/execwire/internal/config"
)

// A server that was told to stop lets processes finish, tells their owners, and
// starts nothing new. The call inside the program has no health service; the
// others are asked at both wires.
func TestDrainingLetsProcessesFinish(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(patience) }
	withConfig(t, patient, func(s *story) {
		p := s.run(program("echo"), stdin)
		s.expectHealth(healthpb.HealthCheckResponse_SERVING)
		s.server.stop(errStop)
		eventually(s, "it refuses to start processes", func() bool {
			_, err := s.processes.StartProcess(s.ctx, s.request(shell("exit 0")).GetProcess())
			return reasonOf(err) == "DRAINING"
		})
		s.expectHealth(healthpb.HealthCheckResponse_NOT_SERVING)

		p.write("last words")
		p.endInput()
		p.expectOutput(stdoutOf, "last words")
		p.expectEnd(s, 0, noSignal, byItself)
		s.awaitServed()
	})
}

// expectHealth checks the health service at both wires, over the connection of
// the story where it is one: a draining server takes no new ones.
func (s *story) expectHealth(want healthpb.HealthCheckResponse_ServingStatus) {
	s.Helper()
	if s.wire == nil {
		return
	}
	response, err := healthpb.NewHealthClient(s.conn).Check(s.ctx, &healthpb.HealthCheckRequest{})
	if err != nil || response.GetStatus() != want {
		s.Errorf("health is %v, %v; want %v", response.GetStatus(), err, want)
	}
}

// awaitServed waits until the server has stopped.
func (s *story) awaitServed() {
	s.Helper()
	select {
	case err := <-s.server.served:
		s.server.served <- err
	case <-s.ctx.Done():
		s.Fatal("the server does not stop")
	}
}

// What still runs after the grace is ended, and its owner is told why.
func TestTheShutdownGraceIsTheEnd(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(200 * time.Millisecond) }
	withConfig(t, brief, func(s *story) {
		p := s.run(program("ignore-term"))
		p.expectOutput(stdoutOf, "ready\n")
		observer := s.watch(p.id, 0)
		lossless := s.watchLossless(s.start(program("ignore-term")))
		lossless.expectOutput(stdoutOf, "ready\n")
		s.server.stop(errStop)
		for _, told := range []*follower{p.follower, observer, lossless} {
			told.expectEnd(s, 0, sigkill, byShutdown)
		}
		s.awaitServed()
	})
}

// An owner can return while the server drains.
func TestAnOwnerReturnsWhileTheServerDrains(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(patience) }
	withConfig(t, patient, func(s *story) {
		p := s.run(program("echo"), stdin)
		s.server.stop(errStop)
		eventually(s, "it refuses to start processes", func() bool {
			_, err := s.processes.StartProcess(s.ctx, s.request(shell("exit 0")).GetProcess())
			return reasonOf(err) == "DRAINING"
		})
		p.disconnect()
		p.resume()
		p.write("back")
		p.endInput()
		p.expectOutput(stdoutOf, "back")
		p.expectEnd(s, 0, noSignal, byItself)
		s.awaitServed()
	})
}
