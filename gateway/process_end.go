package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// terminateParams are the parameters of process/terminate.
type terminateParams struct {
	ProcessID string `param:"processId"`
}

// terminateResult is the result of process/terminate.
type terminateResult struct {
	Running bool `json:"running"`
}

func (p *terminateParams) order() (string, place) { return p.ProcessID, placeAny }

// run kills the process and its descendants. What a process left behind when it
// exited is left alone.
func (p *terminateParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	id := coreProcessID(p.ProcessID)
	described, failed := r.describe(ctx, p.ProcessID)
	if failed != nil || described == nil || described.GetExit() != nil {
		return terminateResult{}, failed
	}
	r.holdForSignal(id)
	response, err := r.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId: r.session.id, ProcessId: id,
		Termination: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}},
	})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return terminateResult{Running: response.GetWasRunning()}, nil
}

// describe returns what the core knows of a process, nil for one that does not
// exist.
func (r *request) describe(ctx context.Context, id string) (*execwirev1.Process, *jsonrpc.Error) {
	if checkProcessID(id) != nil {
		return nil, nil
	}
	response, err := r.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
		SessionId: r.session.id, ProcessId: coreProcessID(id)})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return response.GetProcess(), nil
}

// isGone reports whether a process does not exist, or exists no more.
func isGone(err error) bool {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return true
	}
	return false
}

// signalParams are the parameters of process/signal.
type signalParams struct {
	ProcessID string     `param:"processId"`
	Signal    signalName `param:"signal"`
}

// signalName is a signal by the name that clients have for it.
type signalName execwirev1.Signal

func (s *signalName) UnmarshalText(text []byte) error {
	if string(text) != "interrupt" {
		return unknownVariant(text, "`interrupt`")
	}
	*s = signalName(execwirev1.Signal_SIGNAL_INT)
	return nil
}

func (p *signalParams) order() (string, place) { return p.ProcessID, placeAny }

// run signals the process group, or what a key press in the terminal would. It
// is no error that there is nobody to signal.
func (p *signalParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	described, failed := r.describe(ctx, p.ProcessID)
	if failed != nil || described == nil || described.GetExit() != nil {
		return struct{}{}, failed
	}
	id := coreProcessID(p.ProcessID)
	target := execwirev1.SignalTarget_SIGNAL_TARGET_GROUP
	if described.GetHasTerminal() {
		target = execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
	}
	r.holdForSignal(id)
	_, err := r.processes.SignalProcess(ctx, &execwirev1.SignalProcessRequest{
		SessionId: r.session.id, ProcessId: id, Signal: execwirev1.Signal(p.Signal), Target: target})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return struct{}{}, nil
}
