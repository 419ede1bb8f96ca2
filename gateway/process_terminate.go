package gateway

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// terminateParams are the parameters of process/terminate.
type terminateParams struct {
	ProcessID string           `param:"processId"`
	Mode      *terminationMode `param:"mode,named"`
	TimeoutMs *uint64          `param:"timeoutMs,named"`
}

// terminationMode is how a client wants a process to be ended.
type terminationMode string

const (
	modeForce    terminationMode = "force"
	modeGraceful terminationMode = "graceful"
)

func (m *terminationMode) UnmarshalText(text []byte) error {
	switch mode := terminationMode(text); mode {
	case modeForce, modeGraceful:
		*m = mode
		return nil
	}
	return jsonrpc.UnknownVariant(string(text), string(modeForce), string(modeGraceful))
}

// terminateResult is the result of process/terminate without a mode.
type terminateResult struct {
	Running bool `json:"running"`
}

// terminationResult is the result of process/terminate with a mode.
type terminationResult struct {
	Running       bool    `json:"running"`
	ExitCode      *int64  `json:"exitCode"`
	Method        *string `json:"method"`
	VerifiedEmpty bool    `json:"verifiedEmpty"`

	Exit *exactExit `json:"exit,omitempty"`
}

func (p *terminateParams) order() (string, place) { return p.ProcessID, placeAny }

// waits is for the processes that are asked first.
func (p *terminateParams) waits() bool { return p.isGraceful() }

func (p *terminateParams) isGraceful() bool { return p.Mode != nil && *p.Mode == modeGraceful }

func (p *terminateParams) check() *jsonrpc.Error {
	if p.TimeoutMs != nil && !p.isGraceful() {
		return invalidMember("timeoutMs", "is for the mode graceful: set that, or leave it out")
	}
	return nil
}

// run ends the process and its descendants. What a process left behind when it
// exited is left alone, unless the client gave a mode.
func (p *terminateParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if p.Mode != nil {
		return p.runMode(ctx, r)
	}
	id := coreProcessID(p.ProcessID)
	described, failed := r.describe(ctx, p.ProcessID)
	if failed != nil || described == nil || described.GetExit() != nil {
		return terminateResult{}, failed
	}
	r.holdForSignal(id)
	response, err := r.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId: r.session.id, ProcessId: id, Termination: p.termination()})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return terminateResult{Running: response.GetWasRunning()}, nil
}

// runMode ends the process as the client wants it, and says how that was done.
func (p *terminateParams) runMode(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if checkProcessID(p.ProcessID) != nil {
		return terminationResult{}, nil
	}
	id := coreProcessID(p.ProcessID)
	r.holdForSignal(id)
	response, err := r.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId: r.session.id, ProcessId: id, Termination: p.termination()})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return terminationResult{
		Running:       response.GetWasRunning(),
		ExitCode:      exitCodeOrNil(response.GetExit()),
		Method:        killMethodName(response.GetMethod()),
		VerifiedEmpty: response.GetVerifiedEmpty(),
		Exit:          r.exactExitOf(response.GetExit()),
	}, nil
}

func (p *terminateParams) termination() *execwirev1.Termination {
	if !p.isGraceful() {
		return &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
	}
	graceful := &execwirev1.GracefulTermination{}
	if p.TimeoutMs != nil {
		graceful.Timeout = durationpb.New(milliseconds(*p.TimeoutMs))
	}
	return &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{Graceful: graceful}}
}

// killMethodName is a means of ending a process as the protocol has it, nil for
// none.
func killMethodName(method execwirev1.KillMethod) *string {
	var name string
	switch method {
	case execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP:
		name = "processGroup"
	case execwirev1.KillMethod_KILL_METHOD_DESCENDANTS:
		name = "descendants"
	case execwirev1.KillMethod_KILL_METHOD_CGROUP:
		name = "cgroup"
	default:
		return nil
	}
	return &name
}
