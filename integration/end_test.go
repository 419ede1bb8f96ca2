package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestExitCodesAndSignalsAreToldApart(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		for _, code := range []int32{0, 1, 127, 128 + 9, 255} {
			p := s.run(program("exit", strconv.Itoa(int(code))))
			p.expectNothingMore()
			p.expectEnd(s, code, noSignal, byItself)
		}
		for _, signal := range []execwirev1.Signal{1, 2, 6, 9, 11, 15, 34} {
			p := s.run(program("signal-self", strconv.Itoa(int(signal))))
			p.expectEnd(s, 0, signal, byItself)
		}
	})
}

// A signal that a client sends is the process's to die of: only termination is
// this server's doing.
func TestSignalsAreDelivered(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("trap-term"))
		p.expectOutput(stdoutOf, "ready\n")
		p.signal(sigterm, toLeader)
		p.expectOutput(stdoutOf, "terminated\n")
		p.expectEnd(s, 7, noSignal, byItself)

		id := s.start(program("tree", "2"))
		s.watch(id, 0).expectSomewhere(stdoutOf, "ready")
		_, err := s.processes.SignalProcess(s.ctx, &execwirev1.SignalProcessRequest{
			ProcessId: id, Signal: execwirev1.Signal_SIGNAL_HUP, Target: toGroup})
		if err != nil {
			s.Fatal(err)
		}
		s.expectEnd(s.awaitExit(id), 0, execwirev1.Signal_SIGNAL_HUP, byItself)
	})
}

func TestGracefulTerminationAsksFirst(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("trap-term"))
		p.expectOutput(stdoutOf, "ready\n")
		p.terminate(gracefully(patience))
		p.expectOutput(stdoutOf, "terminated\n")
		p.expectEnd(s, 7, noSignal, terminated)
	})
}

func TestGracefulTerminationKillsWhoDoesNotListen(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("ignore-term"))
		s.watch(id, 0).expectOutput(stdoutOf, "ready\n")
		response := s.terminate(id, gracefully(50*time.Millisecond))
		s.expectEnd(response.GetExit(), 0, sigkill, terminated)
		if !response.GetWasRunning() || response.GetMethod() == execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED {
			s.Errorf("terminating it says %v", response)
		}
		again := s.terminate(id, forced)
		s.expectEnd(again.GetExit(), 0, sigkill, terminated)
		if again.GetWasRunning() {
			s.Error("it was running when it was terminated a second time")
		}
	})
}

func TestForcedTerminationKillsTheWholeGroup(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("tree", "3"))
		p.expectOutput(stdoutOf, "ready ")
		for !strings.Contains(string(p.output[stdoutOf]), "\n") {
			p.step()
		}
		var pids []int
		for _, field := range strings.Fields(string(p.output[stdoutOf])) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				s.Fatal(err)
			}
			pids = append(pids, pid)
		}
		p.terminate(forced)
		p.expectEnd(s, 0, sigkill, terminated)
		for _, pid := range pids {
			eventually(s, fmt.Sprintf("descendant %d is gone", pid), func() bool { return isGone(pid) })
		}
		if len(pids) != 3 {
			s.Errorf("the descendants were %v, want 3", pids)
		}
	})
}

// isGone reports whether a process of that pid has ended; one that nobody has
// reaped yet has.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func TestATimeoutEndsTheProcess(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("ignore-term"), timeout(300*time.Millisecond))
		p.expectEnd(s, 0, sigkill, timedOut)
	})
}

// An owner learns of every end, whoever brought it about.
func TestTheOwnerLearnsThatSomebodyElseTerminated(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("sleep"))
		s.terminate(p.id, forced)
		p.expectNothingMore()
		p.expectEnd(s, 0, sigkill, terminated)
	})
}
