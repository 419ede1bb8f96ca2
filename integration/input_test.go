package integration

import (
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestInputIsEchoedUntilItEnds(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin)
		p.write("hello ")
		p.expectOutput(stdoutOf, "hello ")
		p.write("world")
		p.endInput()
		p.expectOutput(stdoutOf, "world")
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

// A client that closes its half of the stream has no more input.
func TestHalfCloseEndsTheInput(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin)
		p.write("all of it")
		p.silent = true
		if err := p.stream.CloseSend(); err != nil {
			s.Fatal(err)
		}
		p.expectOutput(stdoutOf, "all of it")
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
	})
}

// Without a pipe the process reads end of file at once.
func TestInputIsClosedUnlessAskedFor(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"))
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
	})
}

func TestARepeatedWriteIsAppliedOnce(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("echo"), stdin)
		for _, write := range []struct{ id, text string }{
			{"a", "once,"}, {"a", "once,"}, {"b", "another,"}, {"a", "once,"}, {"", "unnamed,"}, {"", "unnamed,"},
		} {
			_, err := s.processes.WriteStdin(s.ctx, &execwirev1.WriteStdinRequest{
				ProcessId: id, WriteId: write.id, Data: []byte(write.text)})
			if err != nil {
				s.Fatal(err)
			}
		}
		s.closeStdin(id)
		p := s.watch(id, 0)
		p.expectOutput(stdoutOf, "once,another,unnamed,unnamed,")
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
	})
}

// What the owner sent before a cut and sends again after it is applied once.
func TestInputSentAgainAfterACutIsAppliedOnce(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin)
		p.write("accepted,")
		p.awaitAccepted(uint64(len("accepted,")))
		p.write("maybe,")
		p.disconnect()

		p.resume()
		offset := p.started.GetStdinOffset()
		if all := "accepted,maybe,"; offset < uint64(len("accepted,")) || offset > uint64(len(all)) {
			s.Fatalf("%d bytes were accepted, want %d to %d", offset, len("accepted,"), len(all))
		}
		p.writeAt(0, "accepted,maybe,", false)
		p.write("again")
		p.endInput()
		p.expectOutput(stdoutOf, "accepted,maybe,again")
		p.expectOutput(stderrOf, "end of input\n")
		p.expectNothingMore()
	})
}

// Input that leaves a hole, or exceeds the window, ends the stream; the process
// can be taken up again.
func TestInputOutOfOrderEndsTheStream(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin)
		p.writeAt(5, "hole", false)
		s.expectReason(p.failure(), "STDIN_OFFSET_INVALID")
		s.awaitOwned(p.id, false)
		p.resume()
		p.write("right")
		p.endInput()
		p.expectOutput(stdoutOf, "right")
		p.expectEnd(s, 0, noSignal, byItself)

		q := s.run(program("never-read"), stdin)
		piece := strings.Repeat("x", 32<<10)
		for q.sent <= 4*q.started.GetStdinWindowBytes() {
			if err := q.stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
				Stdin: &execwirev1.RunStdin{Offset: q.sent, Data: []byte(piece)}}}); err != nil {
				break
			}
			q.sent += uint64(len(piece))
		}
		s.expectReason(q.failure(), "STDIN_OFFSET_INVALID")
		s.terminate(q.id, forced)
	})
}
