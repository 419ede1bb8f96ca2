package integration

import (
	"fmt"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

func TestResumingLosesNothing(t *testing.T) {
	withConfig(t, small, func(s *story) {
		p := s.run(program("flood", "-bytes", fmt.Sprint(floodBytes), "-stderr", "1000000"))
		for len(p.output[stdoutOf]) < floodBytes/3 {
			p.step()
		}
		p.disconnect()
		p.resume()
		for len(p.output[stdoutOf]) < floodBytes/2 {
			p.step()
		}
		p.disconnect()
		p.resume()
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectPattern(stderrOf, testproc.StderrPattern, 1_000_000)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.dropped != 0 {
			s.Errorf("%d bytes were dropped", p.dropped)
		}
	})
}

// A process that ends while its owner is away is kept for as long as the owner
// was promised, however short closed processes are kept.
func TestAnEndWhileTheOwnerIsAwayIsKeptForIt(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(50 * time.Millisecond) }
	withConfig(t, brief, func(s *story) {
		p := s.run(shell(`printf before; read line; printf after; exit 4`), stdin, grace(patience))
		p.expectOutput(stdoutOf, "before")
		p.disconnect()
		s.write(p.id, "go on\n")
		s.awaitClosed(p.id)
		time.Sleep(300 * time.Millisecond) // several times the retention

		p.resume()
		p.expectOutput(stdoutOf, "after")
		p.expectNothingMore()
		p.expectEnd(s, 4, noSignal, byItself)
	})
}

func TestAProcessWhoseOwnerDoesNotReturnIsTerminated(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("sleep"), grace(200*time.Millisecond))
		p.disconnect()
		s.expectEnd(s.awaitExit(p.id), 0, sigkill, terminated)
	})
}

func TestAGraceOfZeroTerminatesAtOnce(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("sleep"), grace(0))
		p.disconnect()
		s.expectEnd(s.awaitExit(p.id), 0, sigkill, terminated)
	})
}

// A return ends the grace: the process outlives what was left of it.
func TestAReturnEndsTheGrace(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin, grace(time.Second))
		p.disconnect()
		p.resume()
		time.Sleep(1200 * time.Millisecond)
		p.write("still here")
		p.endInput()
		p.expectOutput(stdoutOf, "still here")
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

// A grace ends with its process: what has been terminated is no owner's any
// more, and others read what it said.
func TestDetachingLeavesTheProcessRunning(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin, grace(0))
		p.write("hello")
		p.awaitAccepted(5)
		p.detach()
		s.awaitOwned(p.id, false)
		if state := s.get(p.id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Fatalf("after detaching it is %v", state)
		}
		s.closeStdin(p.id)
		observer := s.watch(p.id, 0)
		observer.expectOutput(stdoutOf, "hello")
		observer.expectEnd(s, 0, noSignal, byItself)
	})
}

func TestTheNewestOwnerTakesOver(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		first := s.run(program("echo"), stdin)
		first.write("one,")
		first.expectOutput(stdoutOf, "one,")
		second := s.own(first.id, first.last)
		s.expectReason(first.failure(), "PROCESS_TAKEN_OVER")
		second.offsets[stdoutOf] = 4
		second.sent = second.started.GetStdinOffset()
		second.write("two")
		second.endInput()
		second.expectOutput(stdoutOf, "two")
		second.expectEnd(s, 0, noSignal, byItself)
	})
}

// An owner whose network went silent, which nobody notices, comes back by
// another way.
func TestAnOwnerReturnsBesideASilentConnection(t *testing.T) {
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			server := newServer(t, small)
			s, other := newStory(t, server, d), newStory(t, server, d)
			p := s.run(program("flood", "-bytes", fmt.Sprint(floodBytes)), named("silent"))
			for len(p.output[stdoutOf]) < floodBytes/4 {
				p.step()
			}
			s.wire.setStalled(true)
			q := other.own("silent", p.last)
			q.offsets, q.output = p.offsets, p.output
			q.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
			q.expectEnd(other, 0, noSignal, byItself)

			s.wire.setStalled(false)
			s.expectReason(p.failure(), "PROCESS_TAKEN_OVER")
		})
	}
}

// The record of a closed process whose exit was seen goes after its time, and its id is
// free.
func TestARecordIsRemovedAfterItsTime(t *testing.T) {
	brief := func(cfg *config.Config) { cfg.ClosedRetention = config.Duration(200 * time.Millisecond) }
	withConfig(t, brief, func(s *story) {
		s.start(shell("exit 1"), named("again"))
		s.awaitExit("again")
		var err error
		eventually(s, "the record is removed", func() bool {
			_, err = s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{ProcessId: "again"})
			return err != nil
		})
		s.expectReason(err, "PROCESS_NOT_FOUND")
		s.start(shell("exit 2"), named("again"))
		if exit := s.awaitExit("again"); exit.GetExitCode() != 2 {
			s.Errorf("the second process of that name ended with %v", exit)
		}
	})
}
