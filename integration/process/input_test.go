package process

import (
	"slices"
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

// Input with a gap ends the stream. The process can be resumed.
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
	})
}

// A client that sends input without regard to the window, and its acknowledgements behind it, is
// slowed down to what the process reads. It loses nothing, and blocks neither itself nor the end
// of a process that reads nothing.
func TestStdin_BeyondTheWindow_IsSlowedDown(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin)
		input := strings.Repeat("0123456789abcde\n", int(4*p.Started.GetStdinWindowBytes()/16))
		acknowledge, sent := sendAtOnce(p, input)
		for len(p.Output[harness.StdoutOf]) < len(input) {
			p.Step()
			acknowledge <- p.Last
		}
		close(acknowledge)
		if err := <-sent; err != nil {
			s.Error(err)
		}
		if string(p.Output[harness.StdoutOf]) != input {
			s.Error("the output is not the input")
		}
		p.Silent = false
		p.EndInput()
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)

		q := s.Run(harness.Program("never-read"), harness.WithStdin)
		acknowledge, sent = sendAtOnce(q, input)
		close(acknowledge)
		s.Terminate(q.ID, harness.Forced)
		for q.Totals == nil {
			q.Step()
		}
		q.Leave(harness.ErrDisconnect)
		<-sent // it may have sent all
	})
}

// sendAtOnce sends input in a goroutine, and behind each piece the acknowledgements that there are,
// as a client does that has one queue for all it sends.
func sendAtOnce(o *harness.Owner, input string) (acknowledge chan<- uint64, sent <-chan error) {
	o.Silent = true
	seqs, done := make(chan uint64, 1<<16), make(chan error, 1)
	pass := func(seq uint64) error {
		return o.Stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
			Acknowledge: &execwirev1.RunAcknowledge{Seq: seq}}})
	}
	send := func() error {
		for piece := range slices.Chunk([]byte(input), 32<<10) {
			if err := o.Stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
				Stdin: &execwirev1.RunStdin{Offset: o.Sent, Data: piece}}}); err != nil {
				return err
			}
			o.Sent += uint64(len(piece))
			select {
			case seq, open := <-seqs:
				if !open {
					continue
				}
				if err := pass(seq); err != nil {
					return err
				}
			default:
			}
		}
		for seq := range seqs {
			if err := pass(seq); err != nil {
				return err
			}
		}
		return nil
	}
	go func() { done <- send() }()
	return seqs, done
}
