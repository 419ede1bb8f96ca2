package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// commandWriteParams are the parameters of command/exec/write.
type commandWriteParams struct {
	ProcessID string         `param:"processId"`
	Chunk     jsonrpc.Base64 `param:"chunk"`
}

// commandWriteResult is the result of command/exec/write.
type commandWriteResult struct {
	Accepted bool `json:"accepted"`
}

func (p *commandWriteParams) order() (string, place) { return p.ProcessID, placeWrite }

// run writes as process/write does. What nobody can read is refused, where
// process/write has a status for it.
func (p *commandWriteParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if checkProcessID(p.ProcessID) != nil {
		return nil, unknownProcess(p.ProcessID)
	}
	err := r.writeStdin(ctx, coreProcessID(p.ProcessID), p.Chunk, func(int) string { return "" })
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED,
		execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return nil, failureWithCode(err, jsonrpc.CodeInvalidRequest, "stdin of process "+p.ProcessID+" is closed")
	}
	if err != nil {
		return nil, processFailure(p.ProcessID, err)
	}
	return commandWriteResult{Accepted: true}, nil
}

// commandTerminateParams are the parameters of command/exec/terminate.
type commandTerminateParams struct {
	ProcessID string `param:"processId"`
}

func (p *commandTerminateParams) order() (string, place) { return p.ProcessID, placeAny }

// run is that of process/terminate without more parameters.
func (p *commandTerminateParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return (&terminateParams{ProcessID: p.ProcessID}).run(ctx, r)
}
