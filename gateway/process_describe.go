package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

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
