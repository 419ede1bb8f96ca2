package integration

import (
	"context"
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// small is a server whose processes have little room, so that little output
// exceeds it.
func small(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 }

// floodBytes is more than a small server retains and every buffer on the way to
// a client of these tests holds.
const floodBytes = 8 << 20

// An observer that stalls is told exactly what it misses. The owner, at the
// same time, misses nothing and is not held up.
func TestAnObserverThatStallsGetsAGapAndTheOwnerEverything(t *testing.T) {
	withConfig(t, small, func(s *story) {
		p := s.run(shell(`read line; exec "$@"`), stdin, appendArgs(program("flood", "-bytes", fmt.Sprint(floodBytes))))
		observer := s.watch(p.id, 0)
		p.write("go\n")
		observer.step() // and no more for now
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.dropped != 0 {
			s.Errorf("the owner lost %d bytes", p.dropped)
		}

		observer.expectEnd(s, 0, noSignal, byItself)
		received := uint64(len(observer.output[stdoutOf]))
		if observer.dropped == 0 || received+observer.dropped != floodBytes {
			s.Errorf("the observer got %d bytes and was told of %d more, of %d", received, observer.dropped, floodBytes)
		}
	})
}

// appendArgs gives a script its "$@".
func appendArgs(argv []string) option {
	return func(r *execwirev1.RunStart) {
		direct := r.GetProcess().GetCommand().GetDirect()
		direct.Argv = append(append(direct.GetArgv(), "sh"), argv...)
	}
}

// An owner that stalls holds up its own process and nothing else on the same
// connection; not even the end of that process.
func TestAnOwnerThatStallsBlocksItsProcessAlone(t *testing.T) {
	withConfig(t, small, func(s *story) {
		stalled := s.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		neighbour := s.run(program("flood", "-bytes", "1000000"))
		neighbour.expectPattern(stdoutOf, testproc.StdoutPattern, 1_000_000)
		neighbour.expectEnd(s, 0, noSignal, byItself)
		if state := s.get(stalled.id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Fatalf("a process whose output nobody took is %v, want running", state)
		}

		response := s.terminate(stalled.id, forced)
		s.expectEnd(response.GetExit(), 0, sigkill, terminated)
		stalled.expectEnd(s, 0, sigkill, terminated)
		got := stalled.output[stdoutOf]
		if verifier := testproc.StdoutPattern.NewVerifier(); !wrote(verifier, got) || stalled.dropped != 0 {
			s.Errorf("of %d bytes %d are right, %d were dropped", len(got), verifier.Offset(), stalled.dropped)
		}
		if len(got) >= floodBytes {
			s.Errorf("the process wrote all its %d bytes though nobody took them", len(got))
		}
	})
}

// An owner that takes and does not acknowledge gets one window.
func TestAWindowIsAllThatIsLeftUnacknowledged(t *testing.T) {
	withConfig(t, small, func(s *story) {
		p := s.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		p.silent = true
		window := p.started.GetOutputWindowBytes()
		for uint64(len(p.output[stdoutOf])) < window/2 {
			p.step()
		}
		s.awaitExitNever(p.id)
		if got := uint64(len(p.output[stdoutOf])); got > window {
			s.Errorf("%d bytes came unacknowledged, the window is %d", got, window)
		}
		p.silent = false
		p.acknowledge(p.last)
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
	})
}

// awaitExitNever shows that a process is still there when another one has come
// and gone.
func (s *story) awaitExitNever(id string) {
	s.Helper()
	s.elsewhere(func() { s.awaitClosed(s.start(program("flood", "-bytes", "1000000"))) })
	if exit := s.get(id).GetExit(); exit != nil {
		s.Errorf("it ended with %v", exit)
	}
}

// A lossless watch holds the process back like an owner, as long as it is
// there.
func TestALosslessWatchMissesNothing(t *testing.T) {
	withConfig(t, small, func(s *story) {
		id := s.start(shell(`read line; exec "$@"`), stdin, appendArgs(program("flood", "-bytes", fmt.Sprint(floodBytes))))
		watch := s.watchLossless(id)
		s.awaitLossless(id)
		s.write(id, "go\n")
		s.awaitExitNever(id)
		watch.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		watch.expectEnd(s, 0, noSignal, byItself)
		if watch.dropped != 0 {
			s.Errorf("%d bytes were dropped", watch.dropped)
		}
	})
}

// awaitLossless waits until a lossless watch is there: nobody else can have one
// then.
func (s *story) awaitLossless(id string) {
	s.Helper()
	eventually(s, "somebody watches losslessly", func() bool {
		ctx, cancel := context.WithCancelCause(s.ctx)
		defer cancel(errDisconnect)
		stream, err := s.processes.WatchProcess(ctx, &execwirev1.WatchProcessRequest{ProcessId: id, Lossless: true, AfterSeq: 1 << 40})
		if err == nil {
			_, err = stream.Recv()
		}
		return reasonOf(err) == "PROCESS_OWNED"
	})
}

// A lossless watch never stands in an owner's way.
func TestALosslessWatchGivesWayToAnOwner(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		watch := s.watchLossless(id)
		s.awaitLossless(id)
		p := s.own(id, 0)
		s.expectReason(watch.failure(), "PROCESS_TAKEN_OVER")
		s.expectReason(s.watchLossless(id).failure(), "PROCESS_OWNED")
		p.endInput()
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
	})
}
