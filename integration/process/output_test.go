package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

func TestOutput_BothStreams_AreCompleteAndSeparate(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Shell(`printf 'to stdout'; printf 'to stderr' >&2; exit 3`))
		p.ExpectOutput(harness.StdoutOf, "to stdout")
		p.ExpectOutput(harness.StderrOf, "to stderr")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 3, harness.NoSignal, harness.ByItself)
	})
}

// The follower checks that exited follows the output, closed is last and the totals are right.
// This output is large enough to show mistakes.
func TestOutput_Flood_IsCompletePerStream(t *testing.T) {
	const stdoutBytes, stderrBytes = 3<<20 + 17, 1<<20 + 5
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("flood", "-bytes", "3145745", "-stderr", "1048581", "-chunk", "5000"))
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, stdoutBytes)
		p.ExpectPattern(harness.StderrOf, testproc.StderrPattern, stderrBytes)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if p.Totals[harness.StdoutOf] != stdoutBytes || p.Totals[harness.StderrOf] != stderrBytes || p.Dropped != 0 {
			t.Errorf("the totals are %v, %d bytes were dropped", p.Totals, p.Dropped)
		}
	})
}

// Descendants that keep a stream open write after the exit, and before the close.
func TestOutput_OfDescendantsAfterTheExit_IsDelivered(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		goOn := filepath.Join(s.TempDir(), "go-on")
		p := s.Run(harness.Program("hold-pipes", goOn))
		if exit := awaitExitEvent(p.Follower); exit.GetExitCode() != 3 {
			s.Errorf("the parent ended with %v, want code 3", exit)
		}
		expectSomewhere(p.Follower, harness.StdoutOf, "parent ")
		if p.Totals != nil {
			s.Fatal("it closed while a descendant held its stdout")
		}
		if state := s.Get(p.ID).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_EXITED {
			s.Errorf("its state is %v, want exited", state)
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			s.Fatal(err)
		}
		expectSomewhere(p.Follower, harness.StdoutOf, "late\n")
		p.ExpectNothingMore()
		if state := s.Get(p.ID).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
			s.Errorf("its state is %v, want closed", state)
		}
	})
}

// Output that nobody owns is complete, also if it is more than is kept in memory.
func TestObserver_OfMuchUnownedOutput_GetsAll(t *testing.T) {
	const stdoutBytes, stderrBytes = 5<<20 + 17, 1<<20 + 5
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("flood", "-bytes", "5242897", "-stderr", "1048581", "-chunk", "5000"))
		s.AwaitClosed(id)
		if first := s.Get(id).GetFirstAvailableSeq(); first != 1 {
			t.Errorf("event %d is the first that is available", first)
		}
		for range 2 {
			p := s.Watch(id, 0)
			p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, stdoutBytes)
			p.ExpectPattern(harness.StderrOf, testproc.StderrPattern, stderrBytes)
			p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
			if p.Dropped != 0 {
				t.Errorf("%d bytes were dropped", p.Dropped)
			}
		}
	})
}

// A late observer gets all retained output, then live output.
func TestObserver_Late_GetsHistoryThenLiveOutput(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		s.Write(id, "one,")
		early := s.Watch(id, 0)
		early.ExpectOutput(harness.StdoutOf, "one,")
		s.Write(id, "two,")
		early.ExpectOutput(harness.StdoutOf, "two,")

		late := s.Watch(id, 0)
		late.ExpectOutput(harness.StdoutOf, "one,two,")
		s.Write(id, "three")
		s.CloseStdin(id)
		for _, observer := range []*harness.Follower{early, late} {
			observer.ExpectOutput(harness.StdoutOf, "three")
			observer.ExpectOutput(harness.StderrOf, "end of input\n")
			observer.ExpectNothingMore()
			observer.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		}

		after := s.Watch(id, 0) // when all is over
		after.ExpectOutput(harness.StdoutOf, "one,two,three")
		after.ExpectOutput(harness.StderrOf, "end of input\n")
		after.ExpectNothingMore()
	})
}

func TestObserver_ContinuesFromACursor(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		s.Write(id, "before")
		first := s.Watch(id, 0)
		first.ExpectOutput(harness.StdoutOf, "before")
		s.Write(id, "after")
		s.CloseStdin(id)

		second := s.Watch(id, first.Last)
		second.Offsets[harness.StdoutOf] = uint64(len("before"))
		second.ExpectOutput(harness.StdoutOf, "after")
		second.ExpectOutput(harness.StderrOf, "end of input\n")
		second.ExpectNothingMore()

		third := s.Watch(id, second.Last)
		if err := third.Failure(); !harness.IsEnd(err) {
			s.Errorf("watching from the last event ended with %v", err)
		}
		fourth := s.Watch(id, second.Last+1)
		s.ExpectReason(fourth.Failure(), "SEQ_NOT_REACHED")
	})
}

// ReadOutput and SnapshotOutput return the same output as the stream.
func TestOutput_ReadByRequest(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("flood", "-bytes", "300000"))
		s.AwaitClosed(id)
		f := harness.NewFollower(s, 0)
		for closed := false; !closed; {
			limit := uint32(50_000)
			response, err := s.Processes.ReadOutput(s.Ctx, &execwirev1.ReadOutputRequest{
				ProcessId: id, AfterSeq: f.Last, MaxBytes: &limit})
			if err != nil {
				s.Fatal(err)
			}
			for _, event := range response.GetEvents() {
				f.Check(event)
			}
			closed = response.GetClosed() && response.GetNextAfterSeq() == response.GetLastSeq()
		}
		if verifier := testproc.StdoutPattern.NewVerifier(); !harness.Matches(verifier, f.Output[harness.StdoutOf]) || verifier.Offset() != 300_000 {
			s.Errorf("ReadOutput gave %d right bytes", verifier.Offset())
		}
		snapshot, err := s.Processes.SnapshotOutput(s.Ctx, &execwirev1.SnapshotOutputRequest{ProcessId: id})
		if err != nil {
			s.Fatal(err)
		}
		out := snapshot.GetStreams()[0]
		all := string(f.Output[harness.StdoutOf])
		if out.GetTotalBytes() != 300_000 || !strings.HasPrefix(all, string(out.GetHead())) || !strings.HasSuffix(all, string(out.GetTail())) ||
			uint64(len(out.GetHead())+len(out.GetTail()))+out.GetOmittedBytes() != 300_000 || len(out.GetHead()) != 64<<10 {
			s.Errorf("the snapshot has %d bytes of head, %d of tail, %d omitted of %d",
				len(out.GetHead()), len(out.GetTail()), out.GetOmittedBytes(), out.GetTotalBytes())
		}
	})
}
