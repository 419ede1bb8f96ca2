package gateway

import (
	"context"
	"fmt"
	"strings"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxProcessIDBytes is the server's limit.
const maxProcessIDBytes = 1024

// escape precedes the server's id of a process whose client id is empty or begins with
// escape. All other ids are equal on both sides.
const escape = "~"

// processID is a client's id of a process, which the server accepts.
type processID string

// UnmarshalText rejects an id that the server would reject.
func (id *processID) UnmarshalText(text []byte) error {
	*id = processID(text)
	if len(id.server()) > maxProcessIDBytes {
		return fmt.Errorf("processId is longer than %d bytes", maxProcessIDBytes)
	}
	return nil
}

// server returns the server's id. The server would replace an empty id by one of its own.
func (id processID) server() string {
	if id == "" || strings.HasPrefix(string(id), escape) {
		return escape + string(id)
	}
	return string(id)
}

// clientProcessID is the inverse of [processID.server].
func clientProcessID(id string) processID { return processID(strings.TrimPrefix(id, escape)) }

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
	switch rpcerror.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return true
	}
	return false
}

// processError is [rpcerror.Of] for calls on a process.
func processError(id processID, err error) *jsonrpc.Error {
	switch rpcerror.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return rpcerror.WithText(err, "unknown process id "+string(id))
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		return rpcerror.WithText(err, "process "+string(id)+" already exists")
	}
	return rpcerror.Of(err)
}
