package process

import (
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// An observer that does not read receives a gap with exactly what it missed. The owner misses
// nothing meanwhile and is not delayed.
func TestObserver_Stalled_GetsAGapAndTheOwnerEverything(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		p := s.Run(harness.Shell(`read line; exec "$@"`), harness.WithStdin, harness.AppendArgs(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes))))
		observer := s.Watch(p.ID, 0)
		p.Write("go\n")
		observer.Step() // and no more for now
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if p.Dropped != 0 {
			s.Errorf("the owner lost %d bytes", p.Dropped)
		}

		observer.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		received := uint64(len(observer.Output[harness.StdoutOf]))
		if observer.Dropped == 0 || received+observer.Dropped != harness.FloodBytes {
			s.Errorf("the observer got %d bytes and gaps of %d more, of %d", received, observer.Dropped, harness.FloodBytes)
		}
	})
}

// An owner that does not read blocks its own process and nothing else on the connection, not
// even the end of that process.
func TestOwner_Stalled_BlocksOnlyItsProcess(t *testing.T) {
	harness.InEachForm(t, harness.SmallRetention, func(s *harness.Scenario) {
		stalled := s.Run(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
		neighbour := s.Run(harness.Program("flood", "-bytes", "1000000"))
		neighbour.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, 1_000_000)
		neighbour.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if state := s.Get(stalled.ID).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Fatalf("a process whose output no client reads is %v, want running", state)
		}

		response := s.Terminate(stalled.ID, harness.Forced)
		s.ExpectEnd(response.GetExit(), 0, harness.Sigkill, harness.Terminated)
		stalled.ExpectEnd(s, 0, harness.Sigkill, harness.Terminated)
		got := stalled.Output[harness.StdoutOf]
		if verifier := testproc.StdoutPattern.NewVerifier(); !harness.Matches(verifier, got) || stalled.Dropped != 0 {
			s.Errorf("of %d bytes %d are right, %d were dropped", len(got), verifier.Offset(), stalled.Dropped)
		}
		if len(got) >= harness.FloodBytes {
			s.Errorf("the process wrote all its %d bytes although no client read them", len(got))
		}
	})
}

// An owner that reads but does not acknowledge receives one window.
func TestOwner_Window_BoundsUnacknowledgedOutput(t *testing.T) {
	harness.InEachForm(t, harness.SmallRetention, func(s *harness.Scenario) {
		p := s.Run(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
		p.Silent = true
		window := p.Started.GetOutputWindowBytes()
		for uint64(len(p.Output[harness.StdoutOf])) < window/2 {
			p.Step()
		}
		s.ExpectRunning(p.ID)
		if got := uint64(len(p.Output[harness.StdoutOf])); got > window {
			s.Errorf("received %d bytes without acknowledgement, the window is %d", got, window)
		}
		p.Silent = false
		p.Acknowledge(p.Last)
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
	})
}
