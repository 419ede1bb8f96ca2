package gateway

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// terminateParams is the parameters of process/terminate.
type terminateParams struct {
	onProcess
	Mode      *terminationMode `param:"mode,named"`
	TimeoutMs *uint64          `param:"timeoutMs,named"`
}

// terminationMode is how to end the process.
type terminationMode string

const (
	modeForce    terminationMode = "force"
	modeGraceful terminationMode = "graceful"
)

func (m *terminationMode) UnmarshalText(text []byte) error {
	return param.Variant(m, text, []string{string(modeForce), string(modeGraceful)}, modeForce, modeGraceful)
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
}

// blocks implements blockingCall: a graceful termination waits.
func (p *terminateParams) blocks() bool { return p.isGraceful() }

func (p *terminateParams) isGraceful() bool { return p.Mode != nil && *p.Mode == modeGraceful }

func (p *terminateParams) Check() *jsonrpc.Error {
	if p.TimeoutMs != nil && !p.isGraceful() {
		return param.Invalid("timeoutMs", "is for the mode graceful: set that, or leave it out")
	}
	return nil
}

// run ends the process and its descendants. Without a mode, descendants that a process
// left behind when it exited stay.
func (p *terminateParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if p.Mode == nil {
		described, failed := r.describe(ctx, p.ProcessID)
		if failed != nil || described == nil || described.GetExit() != nil {
			return terminateResult{}, failed
		}
	}
	id := p.ProcessID.server()
	r.gateForSignal(id)
	response, err := r.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
		SessionId: r.session.id, ProcessId: id, Termination: p.termination()})
	switch {
	case err != nil && !isGone(err):
		return nil, rpcerror.Of(err)
	case p.Mode == nil:
		return terminateResult{Running: response.GetWasRunning()}, nil
	}
	return terminationResult{
		Running:       response.GetWasRunning(),
		ExitCode:      exitCodeOrNil(response.GetExit()),
		Method:        nameOrNil(killMethods, response.GetMethod()),
		VerifiedEmpty: response.GetVerifiedEmpty(),
	}, nil
}

func (p *terminateParams) termination() *execwirev1.Termination {
	if !p.isGraceful() {
		return &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
	}
	graceful := &execwirev1.GracefulTermination{}
	if p.TimeoutMs != nil {
		graceful.Timeout = durationpb.New(param.Milliseconds(*p.TimeoutMs))
	}
	return &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{Graceful: graceful}}
}

// killMethods are the protocol's names of kill methods.
var killMethods = map[execwirev1.KillMethod]string{
	execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP: "processGroup",
	execwirev1.KillMethod_KILL_METHOD_DESCENDANTS:   "descendants",
	execwirev1.KillMethod_KILL_METHOD_CGROUP:        "cgroup",
}
