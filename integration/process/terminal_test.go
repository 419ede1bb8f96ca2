package process

import (
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

func TestTerminal_Size_CanBeChanged(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("winsize"), harness.WithTerminal(31, 97))
		p.ExpectOutput(harness.TerminalOf, "31x97\r\n")
		resizeTerminal(p, 50, 132)
		p.ExpectOutput(harness.TerminalOf, "50x132\r\n")
		if size := s.Get(p.ID).GetTerminalSize(); size.GetRows() != 50 || size.GetColumns() != 132 {
			s.Errorf("the reported size of the terminal is %v", size)
		}
		resizeTerminal(p, 0, 10)
		awaitRejected(p, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		p.Write("\x04")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

func TestTerminal_EchoesAndEndsAtControlD(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run([]string{"/bin/cat"}, harness.WithTerminal(24, 80))
		p.Write("hello\n")
		p.ExpectOutput(harness.TerminalOf, "hello\r\nhello\r\n")
		p.Write("\x04")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

func TestTerminal_ControlC_InterruptsTheForeground(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		// Short sleeps: one that is being forked when the key is pressed may
		// miss it.
		p := s.Run(harness.Shell(`trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.02; done`), harness.WithTerminal(24, 80))
		p.ExpectOutput(harness.TerminalOf, "ready\r\n")
		p.Write("\x03")
		expectSomewhere(p.Follower, harness.TerminalOf, "interrupted\r\n")
		p.ExpectEnd(s, 9, harness.NoSignal, harness.ByItself)
	})
}

// A key press signals the foreground process group, not the session leader.
func TestTerminal_Signal_ReachesOnlyTheForeground(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		// A shell with job control gives each job a group of its own.
		p := s.Run([]string{"/bin/bash", "-c",
			`set -m; trap 'exit 5' TERM; /bin/sh -c 'echo ready; exec sleep 100'; echo "job ended $?"`}, harness.WithTerminal(24, 200))
		p.ExpectOutput(harness.TerminalOf, "ready\r\n")
		signalOwned(p, harness.Sigterm, harness.ToForeground)
		expectSomewhere(p.Follower, harness.TerminalOf, "job ended 143\r\n")
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}
