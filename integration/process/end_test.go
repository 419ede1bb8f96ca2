package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

func TestExit_CodesAndSignalsDiffer(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		for _, code := range []int32{0, 1, 127, 128 + 9, 255} {
			p := s.Run(harness.Program("exit", strconv.Itoa(int(code))))
			p.ExpectNothingMore()
			p.ExpectEnd(s, code, harness.NoSignal, harness.ByItself)
		}
		for _, signal := range []execwirev1.Signal{1, 2, 6, 9, 11, 15, 34} {
			p := s.Run(harness.Program("signal-self", strconv.Itoa(int(signal))))
			p.ExpectEnd(s, 0, signal, harness.ByItself)
		}
	})
}

// A process that dies of a client's signal has the cause EXITED. Only a termination changes the
// cause.
func TestSignal_IsDelivered(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("trap-term"))
		p.ExpectOutput(harness.StdoutOf, "ready\n")
		signalOwned(p, harness.Sigterm, harness.ToLeader)
		p.ExpectOutput(harness.StdoutOf, "terminated\n")
		p.ExpectEnd(s, 7, harness.NoSignal, harness.ByItself)

		id := s.Start(harness.Program("tree", "2"))
		expectSomewhere(s.Watch(id, 0), harness.StdoutOf, "ready")
		_, err := s.Processes.SignalProcess(s.Ctx, &execwirev1.SignalProcessRequest{
			ProcessId: id, Signal: execwirev1.Signal_SIGNAL_HUP, Target: harness.ToGroup})
		if err != nil {
			s.Fatal(err)
		}
		s.ExpectEnd(awaitExit(s, id), 0, execwirev1.Signal_SIGNAL_HUP, harness.ByItself)
	})
}

func TestTerminate_Graceful_SendsSIGTERMFirst(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("trap-term"))
		p.ExpectOutput(harness.StdoutOf, "ready\n")
		terminate(p, harness.Gracefully(harness.StepTimeout))
		p.ExpectOutput(harness.StdoutOf, "terminated\n")
		p.ExpectEnd(s, 7, harness.NoSignal, harness.Terminated)
	})
}

func TestTerminate_Graceful_KillsAfterTheTimeout(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("ignore-term"))
		s.Watch(id, 0).ExpectOutput(harness.StdoutOf, "ready\n")
		response := s.Terminate(id, harness.Gracefully(50*time.Millisecond))
		s.ExpectEnd(response.GetExit(), 0, harness.Sigkill, harness.Terminated)
		if !response.GetWasRunning() || response.GetMethod() == execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED {
			s.Errorf("terminating it returns %v", response)
		}
		again := s.Terminate(id, harness.Forced)
		s.ExpectEnd(again.GetExit(), 0, harness.Sigkill, harness.Terminated)
		if again.GetWasRunning() {
			s.Error("it was running when it was terminated a second time")
		}
	})
}

func TestTerminate_Forced_KillsTheGroup(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("tree", "3"))
		p.ExpectOutput(harness.StdoutOf, "ready ")
		for !strings.Contains(string(p.Output[harness.StdoutOf]), "\n") {
			p.Step()
		}
		var pids []int
		for _, field := range strings.Fields(string(p.Output[harness.StdoutOf])) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				s.Fatal(err)
			}
			pids = append(pids, pid)
		}
		terminate(p, harness.Forced)
		p.ExpectEnd(s, 0, harness.Sigkill, harness.Terminated)
		for _, pid := range pids {
			harness.Eventually(s, fmt.Sprintf("descendant %d is gone", pid), func() bool { return isGone(pid) })
		}
		if len(pids) != 3 {
			s.Errorf("the descendants were %v, want 3", pids)
		}
	})
}

// isGone reports whether the process with the pid has ended; a zombie counts as ended.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func TestTimeout_EndsTheProcess(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("ignore-term"), harness.WithTimeout(300*time.Millisecond))
		p.ExpectEnd(s, 0, harness.Sigkill, harness.TimedOut)
	})
}

// An owner gets the exit record, whichever client caused the end.
func TestOwner_TerminatedByAnother_IsNotified(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("sleep"))
		s.Terminate(p.ID, harness.Forced)
		p.ExpectNothingMore()
		p.ExpectEnd(s, 0, harness.Sigkill, harness.Terminated)
	})
}
