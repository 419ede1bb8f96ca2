package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// processCall is a call that names a process.
type processCall interface {
	ownCall
	// order returns the client's process id and the order of the call among those on
	// the process.
	order() (id processID, kind orderKind)
}

// onProcess is embedded in the parameters of calls on a process.
type onProcess struct {
	ProcessID processID `param:"processId"`
}

// order is the order of most calls.
func (p *onProcess) order() (processID, orderKind) { return p.ProcessID, orderAny }

// describe returns the server's description of a process; nil if it does not exist.
func (r *request) describe(ctx context.Context, id processID) (*execwirev1.Process, *jsonrpc.Error) {
	response, err := r.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
		SessionId: r.session.id, ProcessId: id.server()})
	if err != nil && !isGone(err) {
		return nil, rpcerror.Of(err)
	}
	return response.GetProcess(), nil
}

// isGone reports whether the error means that the process does not exist (any more).
func isGone(err error) bool {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return true
	}
	return false
}

// processError is [rpcerror.Of] for calls on a process.
func processError(id processID, err error) *jsonrpc.Error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return rpcerror.WithText(err, "unknown process id "+string(id))
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		return rpcerror.WithText(err, "process "+string(id)+" already exists")
	}
	return rpcerror.Of(err)
}

// nameOrNil returns the name of a value; nil if it has none.
func nameOrNil[V comparable](names map[V]string, value V) *string {
	if name, ok := names[value]; ok {
		return &name
	}
	return nil
}

// hasClosed reports whether the process has closed.
func hasClosed(described *execwirev1.Process) bool {
	return described.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
}

// sandboxType returns the reference's name for the sandbox of a process: every backend
// filters system calls.
func sandboxType(started *execwirev1.Process) string {
	if started.GetSandbox() == nil {
		return "none"
	}
	return "linuxSeccomp"
}
