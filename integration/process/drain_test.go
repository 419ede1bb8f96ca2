package process

import (
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// A draining server lets processes finish, reports their end to their owners, and starts
// nothing new. The in-process transport has no health service; the others are asked over both
// transports.
func TestDrain_ProcessesFinish(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(harness.StepTimeout) }
	harness.WithConfig(t, patient, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		expectHealth(s, healthpb.HealthCheckResponse_SERVING)
		s.Server.Stop(harness.ErrStop)
		harness.Eventually(s, "it refuses to start processes", func() bool {
			_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Shell("exit 0")).GetProcess())
			return harness.ReasonOf(err) == "DRAINING"
		})
		expectHealth(s, healthpb.HealthCheckResponse_NOT_SERVING)

		p.Write("last words")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "last words")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		s.AwaitStopped()
	})
}

// expectHealth checks the health service over both transports, over the connection of
// the scenario where it is one: a draining server takes no new ones.
func expectHealth(s *harness.Scenario, want healthpb.HealthCheckResponse_ServingStatus) {
	s.Helper()
	if s.Proxy == nil {
		return
	}
	response, err := healthpb.NewHealthClient(s.Conn).Check(s.Ctx, &healthpb.HealthCheckRequest{})
	if err != nil || response.GetStatus() != want {
		s.Errorf("health is %v, %v; want %v", response.GetStatus(), err, want)
	}
}

// A process that still runs after the grace period is killed, and its owner gets the cause.
func TestDrain_EndsAfterTheShutdownGrace(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(200 * time.Millisecond) }
	harness.WithConfig(t, brief, func(s *harness.Scenario) {
		p := s.Run(harness.Program("ignore-term"))
		p.ExpectOutput(harness.StdoutOf, "ready\n")
		observer := s.Watch(p.ID, 0)
		s.Server.Stop(harness.ErrStop)
		for _, follower := range []*harness.Follower{p.Follower, observer} {
			follower.ExpectEnd(s, 0, harness.Sigkill, harness.ByShutdown)
		}
		s.AwaitStopped()
	})
}

// An owner can resume while the server drains.
func TestDrain_OwnerCanReturn(t *testing.T) {
	patient := func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(harness.StepTimeout) }
	harness.WithConfig(t, patient, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		s.Server.Stop(harness.ErrStop)
		harness.Eventually(s, "it refuses to start processes", func() bool {
			_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Shell("exit 0")).GetProcess())
			return harness.ReasonOf(err) == "DRAINING"
		})
		disconnect(p)
		p.Resume()
		p.Write("back")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "back")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		s.AwaitStopped()
	})
}
