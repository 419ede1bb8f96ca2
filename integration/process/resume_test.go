package process

import (
	"fmt"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

func TestOwner_Resume_LosesNothing(t *testing.T) {
	harness.InEachForm(t, harness.SmallRetention, func(s *harness.Scenario) {
		p := s.Run(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes), "-stderr", "1000000"))
		for len(p.Output[harness.StdoutOf]) < harness.FloodBytes/3 {
			p.Step()
		}
		disconnect(p)
		p.Resume()
		for len(p.Output[harness.StdoutOf]) < harness.FloodBytes/2 {
			p.Step()
		}
		disconnect(p)
		p.Resume()
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
		p.ExpectPattern(harness.StderrOf, testproc.StderrPattern, 1_000_000)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if p.Dropped != 0 {
			s.Errorf("%d bytes were dropped", p.Dropped)
		}
	})
}

// A process that ends while its owner is away is retained for the owner's grace period,
// however short the retention of closed processes is.
func TestOwner_Away_ExitRecordIsKept(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(50 * time.Millisecond) }
	harness.InEachForm(t, brief, func(s *harness.Scenario) {
		p := s.Run(harness.Shell(`printf before; read line; printf after; exit 4`), harness.WithStdin, harness.WithGrace(harness.StepTimeout))
		p.ExpectOutput(harness.StdoutOf, "before")
		disconnect(p)
		s.Write(p.ID, "go on\n")
		s.AwaitClosed(p.ID)
		time.Sleep(300 * time.Millisecond) // several times the retention

		p.Resume()
		p.ExpectOutput(harness.StdoutOf, "after")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 4, harness.NoSignal, harness.ByItself)
	})
}

func TestOwner_DoesNotReturn_ProcessIsTerminated(t *testing.T) {
	harness.InEachForm(t, nil, func(s *harness.Scenario) {
		p := s.Run(harness.Program("sleep"), harness.WithGrace(200*time.Millisecond))
		disconnect(p)
		s.ExpectEnd(awaitExit(s, p.ID), 0, harness.Sigkill, harness.Terminated)
	})
}

func TestGrace_Zero_TerminatesAtOnce(t *testing.T) {
	harness.InEachForm(t, nil, func(s *harness.Scenario) {
		p := s.Run(harness.Program("sleep"), harness.WithGrace(0))
		disconnect(p)
		s.ExpectEnd(awaitExit(s, p.ID), 0, harness.Sigkill, harness.Terminated)
	})
}

// A resume ends the grace period: the process outlives its remainder.
func TestOwner_Return_EndsTheGrace(t *testing.T) {
	harness.Waits(t)
	const grace = 3 * time.Second // within which a busy machine must resume
	harness.InEachForm(t, nil, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin, harness.WithGrace(grace))
		disconnect(p)
		p.Resume()
		time.Sleep(grace + grace/8)
		p.Write("still here")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "still here")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// The grace period ends with its process: a terminated process has no owner any more, and
// others can read its output.
func TestOwner_Detach_LeavesTheProcess(t *testing.T) {
	harness.InEachForm(t, nil, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin, harness.WithGrace(0))
		p.Write("hello")
		awaitAccepted(p, 5)
		p.Detach()
		s.AwaitOwned(p.ID, false)
		if state := s.Get(p.ID).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Fatalf("after detaching it is %v", state)
		}
		s.CloseStdin(p.ID)
		observer := s.Watch(p.ID, 0)
		observer.ExpectOutput(harness.StdoutOf, "hello")
		observer.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

func TestOwner_Newest_TakesOver(t *testing.T) {
	harness.InEachForm(t, nil, func(s *harness.Scenario) {
		first := s.Run(harness.Program("echo"), harness.WithStdin)
		first.Write("one,")
		first.ExpectOutput(harness.StdoutOf, "one,")
		second := s.Own(first.ID, first.Last)
		s.ExpectReason(first.Failure(), "PROCESS_TAKEN_OVER")
		second.Offsets[harness.StdoutOf] = 4
		second.Sent = second.Started.GetStdinOffset()
		second.Write("two")
		second.EndInput()
		second.ExpectOutput(harness.StdoutOf, "two")
		second.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// An owner whose network fails silently resumes over another connection.
func TestOwner_ReturnBesideASilentConnection_TakesOver(t *testing.T) {
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			server := harness.NewServer(t, harness.SmallRetention)
			s, other := harness.NewScenario(t, server, d), harness.NewScenario(t, server, d)
			p := s.Run(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)), harness.WithID("silent"))
			for len(p.Output[harness.StdoutOf]) < harness.FloodBytes/4 {
				p.Step()
			}
			s.Proxy.SetStalled(true)
			q := other.Own("silent", p.Last)
			q.Offsets, q.Output = p.Offsets, p.Output
			q.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
			q.ExpectEnd(other, 0, harness.NoSignal, harness.ByItself)

			s.Proxy.SetStalled(false)
			s.ExpectReason(p.Failure(), "PROCESS_TAKEN_OVER")
		})
	}
}

// The record of a closed process whose exit was seen is removed after the retention, and its
// id is free.
func TestExitRecord_IsRemovedAfterItsRetention(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(200 * time.Millisecond) }
	harness.WithConfig(t, brief, func(s *harness.Scenario) {
		s.Start(harness.Shell("exit 1"), harness.WithID("again"))
		awaitExit(s, "again")
		var err error
		harness.Eventually(s, "the record is removed", func() bool {
			_, err = s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{ProcessId: "again"})
			return err != nil
		})
		s.ExpectReason(err, "PROCESS_NOT_FOUND")
		s.Start(harness.Shell("exit 2"), harness.WithID("again"))
		if exit := awaitExit(s, "again"); exit.GetExitCode() != 2 {
			s.Errorf("the second process of that name ended with %v", exit)
		}
	})
}
