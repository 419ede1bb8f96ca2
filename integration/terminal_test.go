package integration

import (
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestATerminalHasItsSizeAndChangesIt(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("winsize"), terminal(31, 97))
		p.expectOutput(terminalOf, "31x97\r\n")
		p.resize(50, 132)
		p.expectOutput(terminalOf, "50x132\r\n")
		if size := s.get(p.id).GetTerminalSize(); size.GetRows() != 50 || size.GetColumns() != 132 {
			s.Errorf("the terminal is said to be %v", size)
		}
		p.resize(0, 10)
		p.awaitRejected(execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		p.write("\x04")
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

func TestATerminalEchoesAndEndsAtControlD(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run([]string{"/bin/cat"}, terminal(24, 80))
		p.write("hello\n")
		p.expectOutput(terminalOf, "hello\r\nhello\r\n")
		p.write("\x04")
		p.expectNothingMore()
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

func TestControlCInterruptsTheForeground(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		// Short sleeps: one that is being forked when the key is pressed may
		// miss it.
		p := s.run(shell(`trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.02; done`), terminal(24, 80))
		p.expectOutput(terminalOf, "ready\r\n")
		p.write("\x03")
		p.expectSomewhere(terminalOf, "interrupted\r\n")
		p.expectEnd(s, 9, noSignal, byItself)
	})
}

// The foreground group is who a key press reaches, not who leads.
func TestASignalReachesTheForegroundOnly(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		// A shell with job control gives each job a group of its own.
		p := s.run([]string{"/bin/bash", "-c",
			`set -m; trap 'exit 5' TERM; /bin/sh -c 'echo ready; exec sleep 100'; echo "job ended $?"`}, terminal(24, 200))
		p.expectOutput(terminalOf, "ready\r\n")
		p.signal(sigterm, toForeground)
		p.expectSomewhere(terminalOf, "job ended 143\r\n")
		p.expectEnd(s, 0, noSignal, byItself)
	})
}
