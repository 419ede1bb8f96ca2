package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// closeStdinParams are the parameters of process/closeStdin.
type closeStdinParams struct {
	ProcessID string `param:"processId"`
}

// order has the end of input come after the writes before it, which may wait for
// room. It therefore has no permit of those that end things.
func (p *closeStdinParams) order() (string, place) { return p.ProcessID, placeWrite }

// run ends the input of the process. That it has none is no error, as for a
// write.
func (p *closeStdinParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if checkProcessID(p.ProcessID) != nil {
		return writeUnknownProcess, nil
	}
	id := coreProcessID(p.ProcessID)
	r.holdForSignal(id)
	_, err := r.processes.CloseStdin(ctx, &execwirev1.CloseStdinRequest{SessionId: r.session.id, ProcessId: id})
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return writeUnknownProcess, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED:
		return writeStdinClosed, nil
	}
	if err != nil {
		return nil, failureOf(err)
	}
	return writeAccepted, nil
}
