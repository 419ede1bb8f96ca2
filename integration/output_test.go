package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

func TestBothStreamsComeWholeAndApart(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(shell(`printf 'to stdout'; printf 'to stderr' >&2; exit 3`))
		p.expectOutput(stdoutOf, "to stdout")
		p.expectOutput(stderrOf, "to stderr")
		p.expectNothingMore()
		p.expectEnd(s, 3, noSignal, byItself)
	})
}

// The follower checks that exited follows output, closed comes last and the
// totals are right; here there is enough to get it wrong.
func TestAFloodComesWholeAndApart(t *testing.T) {
	const stdoutBytes, stderrBytes = 3<<20 + 17, 1<<20 + 5
	atEveryDoor(t, func(s *story) {
		p := s.run(program("flood", "-bytes", "3145745", "-stderr", "1048581", "-chunk", "5000"))
		p.expectPattern(stdoutOf, testproc.StdoutPattern, stdoutBytes)
		p.expectPattern(stderrOf, testproc.StderrPattern, stderrBytes)
		p.expectEnd(s, 0, noSignal, byItself)
		if p.totals[stdoutOf] != stdoutBytes || p.totals[stderrOf] != stderrBytes || p.dropped != 0 {
			t.Errorf("the totals are %v, %d bytes were dropped", p.totals, p.dropped)
		}
	})
}

// Descendants that hold a stream open speak after the exit, and before the end.
func TestDescendantsSpeakAfterTheExit(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		goOn := filepath.Join(s.TempDir(), "go-on")
		p := s.run(program("hold-pipes", goOn))
		if exit := p.awaitExit(); exit.GetExitCode() != 3 {
			s.Errorf("the parent ended with %v, want code 3", exit)
		}
		p.expectSomewhere(stdoutOf, "parent ")
		if p.totals != nil {
			s.Fatal("it closed while a descendant held its stdout")
		}
		if state := s.get(p.id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_EXITED {
			s.Errorf("its state is %v, want exited", state)
		}
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			s.Fatal(err)
		}
		p.expectSomewhere(stdoutOf, "late\n")
		p.expectNothingMore()
		if state := s.get(p.id).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
			s.Errorf("its state is %v, want closed", state)
		}
	})
}

// Whoever comes late gets all that is retained, then what happens.
func TestALateObserverGetsEverythingThenLive(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		s.write(id, "one,")
		early := s.watch(id, 0)
		early.expectOutput(stdoutOf, "one,")
		s.write(id, "two,")
		early.expectOutput(stdoutOf, "two,")

		late := s.watch(id, 0)
		late.expectOutput(stdoutOf, "one,two,")
		s.write(id, "three")
		s.closeStdin(id)
		for _, observer := range []*follower{early, late} {
			observer.expectOutput(stdoutOf, "three")
			observer.expectOutput(stderrOf, "end of input\n")
			observer.expectNothingMore()
			observer.expectEnd(s, 0, noSignal, byItself)
		}

		after := s.watch(id, 0) // when all is over
		after.expectOutput(stdoutOf, "one,two,three")
		after.expectOutput(stderrOf, "end of input\n")
		after.expectNothingMore()
	})
}

func TestAnObserverGoesOnFromACursor(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		s.write(id, "before")
		first := s.watch(id, 0)
		first.expectOutput(stdoutOf, "before")
		s.write(id, "after")
		s.closeStdin(id)

		second := s.watch(id, first.last)
		second.offsets[stdoutOf] = uint64(len("before"))
		second.expectOutput(stdoutOf, "after")
		second.expectOutput(stderrOf, "end of input\n")
		second.expectNothingMore()

		third := s.watch(id, second.last)
		if err := third.failure(); !isEnd(err) {
			s.Errorf("watching from the last event ended with %v", err)
		}
		fourth := s.watch(id, second.last+1)
		s.expectReason(fourth.failure(), "SEQ_NOT_REACHED")
	})
}

// ReadOutput and SnapshotOutput show the same as the stream does.
func TestOutputCanBeAskedFor(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("flood", "-bytes", "300000"))
		s.awaitClosed(id)
		f := newFollower(s, 0)
		for closed := false; !closed; {
			limit := uint32(50_000)
			response, err := s.processes.ReadOutput(s.ctx, &execwirev1.ReadOutputRequest{
				ProcessId: id, AfterSeq: f.last, MaxBytes: &limit})
			if err != nil {
				s.Fatal(err)
			}
			for _, event := range response.GetEvents() {
				f.take(event)
			}
			closed = response.GetClosed() && response.GetNextAfterSeq() == response.GetLastSeq()
		}
		if verifier := testproc.StdoutPattern.NewVerifier(); !wrote(verifier, f.output[stdoutOf]) || verifier.Offset() != 300_000 {
			s.Errorf("ReadOutput gave %d right bytes", verifier.Offset())
		}
		snapshot, err := s.processes.SnapshotOutput(s.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: id})
		if err != nil {
			s.Fatal(err)
		}
		out := snapshot.GetStreams()[0]
		all := string(f.output[stdoutOf])
		if out.GetTotalBytes() != 300_000 || !strings.HasPrefix(all, string(out.GetHead())) || !strings.HasSuffix(all, string(out.GetTail())) ||
			uint64(len(out.GetHead())+len(out.GetTail()))+out.GetOmittedBytes() != 300_000 || len(out.GetHead()) != 64<<10 {
			s.Errorf("the snapshot has %d bytes of head, %d of tail, %d omitted of %d",
				len(out.GetHead()), len(out.GetTail()), out.GetOmittedBytes(), out.GetTotalBytes())
		}
	})
}

func wrote(v *testproc.Verifier, b []byte) bool {
	_, err := v.Write(b)
	return err == nil
}
