package process

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// awaitAccepted waits until the server has accepted input up to the offset.
func awaitAccepted(o *harness.Owner, offset uint64) {
	o.T.Helper()
	for o.Accepted < offset {
		o.Step()
	}
}

func resizeTerminal(o *harness.Owner, rows, columns uint32) {
	o.T.Helper()
	o.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resize{
		Resize: &execwirev1.TerminalSize{Rows: rows, Columns: columns}}})
}

func signalOwned(o *harness.Owner, signal execwirev1.Signal, target execwirev1.SignalTarget) {
	o.T.Helper()
	o.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Signal{
		Signal: &execwirev1.RunSignal{Signal: signal, Target: target}}})
}

func terminate(o *harness.Owner, how *execwirev1.Termination) {
	o.T.Helper()
	o.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Terminate{Terminate: how}})
}

// awaitRejected waits until the server rejects a message, and checks the reason.
func awaitRejected(o *harness.Owner, want execwirev1.ErrorReason) {
	o.T.Helper()
	for len(o.Rejected) == 0 {
		o.Step()
	}
	if got := o.Rejected[0]; got.GetReason() != want || got.GetMessage() == "" {
		o.T.Errorf("rejected with %v, want %v and words for people", got, want)
	}
	o.Rejected = o.Rejected[1:]
}

// disconnect cuts the connection, or in process the call.
func disconnect(o *harness.Owner) {
	o.T.Helper()
	if o.Scenario.Proxy == nil {
		o.Leave(harness.ErrDisconnect)
	} else if o.Scenario.Proxy.Cut() == 0 {
		o.T.Fatal("there was no connection to cut")
	}
	acknowledged := o.Silent
	o.Silent = true // later events are lost
	if harness.IsEnd(o.Failure()) {
		o.T.Fatal("the stream outlived its connection")
	}
	o.Silent = acknowledged
	o.Scenario.AwaitOwned(o.ID, false)
}
