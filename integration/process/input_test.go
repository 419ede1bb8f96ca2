package process

import (
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

func TestStdin_IsDeliveredUntilItsEnd(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		p.Write("hello ")
		p.ExpectOutput(harness.StdoutOf, "hello ")
		p.Write("world")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "world")
		p.ExpectOutput(harness.StderrOf, "end of input\n")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// A client that closes its half of the stream has no more input.
func TestStdin_HalfClose_EndsTheInput(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		p.Write("all of it")
		p.Silent = true
		if err := p.Stream.CloseSend(); err != nil {
			s.Fatal(err)
		}
		p.ExpectOutput(harness.StdoutOf, "all of it")
		p.ExpectOutput(harness.StderrOf, "end of input\n")
		p.ExpectNothingMore()
	})
}

// Without a pipe the process reads end of file immediately.
func TestStdin_Default_IsClosed(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"))
		p.ExpectOutput(harness.StderrOf, "end of input\n")
		p.ExpectNothingMore()
	})
}

func TestStdin_RepeatedWrite_IsAppliedOnce(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		for _, write := range []struct{ id, text string }{
			{"a", "once,"}, {"a", "once,"}, {"b", "another,"}, {"a", "once,"}, {"", "unnamed,"}, {"", "unnamed,"},
		} {
			_, err := s.Processes.WriteStdin(s.Ctx, &execwirev1.WriteStdinRequest{
				ProcessId: id, WriteId: write.id, Data: []byte(write.text)})
			if err != nil {
				s.Fatal(err)
			}
		}
		s.CloseStdin(id)
		p := s.Watch(id, 0)
		p.ExpectOutput(harness.StdoutOf, "once,another,unnamed,unnamed,")
		p.ExpectOutput(harness.StderrOf, "end of input\n")
		p.ExpectNothingMore()
	})
}

// Input that the owner sends again after a cut is applied once.
func TestStdin_ResentAfterACut_IsAppliedOnce(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		p.Write("accepted,")
		awaitAccepted(p, uint64(len("accepted,")))
		p.Write("maybe,")
		disconnect(p)

		p.Resume()
		offset := p.Started.GetStdinOffset()
		if all := "accepted,maybe,"; offset < uint64(len("accepted,")) || offset > uint64(len(all)) {
			s.Fatalf("%d bytes were accepted, want %d to %d", offset, len("accepted,"), len(all))
		}
		p.WriteAt(0, "accepted,maybe,", false)
		p.Write("again")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "accepted,maybe,again")
		p.ExpectOutput(harness.StderrOf, "end of input\n")
		p.ExpectNothingMore()
	})
}

// Input with a gap, or beyond the window, ends the stream. The process can be resumed.
func TestStdin_OutOfOrder_EndsTheStream(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		p.WriteAt(5, "hole", false)
		s.ExpectReason(p.Failure(), "STDIN_OFFSET_INVALID")
		s.AwaitOwned(p.ID, false)
		p.Resume()
		p.Write("right")
		p.EndInput()
		p.ExpectOutput(harness.StdoutOf, "right")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)

		q := s.Run(harness.Program("never-read"), harness.WithStdin)
		piece := strings.Repeat("x", 32<<10)
		for q.Sent <= 4*q.Started.GetStdinWindowBytes() {
			if err := q.Stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
				Stdin: &execwirev1.RunStdin{Offset: q.Sent, Data: []byte(piece)}}}); err != nil {
				break
			}
			q.Sent += uint64(len(piece))
		}
		s.ExpectReason(q.Failure(), "STDIN_OFFSET_INVALID")
		s.Terminate(q.ID, harness.Forced)
	})
}
