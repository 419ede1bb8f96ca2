package daemon_test

import (
	"errors"
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// A drain does not wait for closed processes whose owners have left without acknowledging
// the end, although their grace period is an hour.
func TestDrain_ClosedProcesses_DoNotCountAsRunning(t *testing.T) {
	s := serve(t, "tcp://127.0.0.1:0")
	processes := execwirev1.NewProcessServiceClient(s.dial(0))
	for i := range 30 {
		run, err := processes.RunProcess(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		err = run.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{
			Process: &execwirev1.StartProcessRequest{ProcessId: fmt.Sprint("p", i),
				Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
					Argv: []string{"/bin/true"}, WorkingDirectory: "/"}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		for closed := false; !closed; {
			message, err := run.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range message.GetEvents().GetEvents() {
				closed = closed || event.GetClosed() != nil
			}
		}
	}
	s.stop(errors.New("SIGTERM"))
	if err := s.wait(); err != nil {
		t.Errorf("Serve = %v", err)
	}
	select {
	case n := <-s.left:
		t.Errorf("the drain waited for %d processes", n)
	default:
	}
}
