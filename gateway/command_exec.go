package gateway

import (
	"context"
	"encoding/json"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// commandParams is the parameters of command/exec, which starts a process in the older
// dialect.
type commandParams struct {
	onProcess
	Argv           []string          `param:"argv"`
	Cwd            string            `param:"cwd"`
	Env            map[string]string `param:"env"`
	Tty            bool              `param:"tty"`
	OutputBytesCap *uint64           `param:"outputBytesCap,optional"`
	Arg0           *string           `param:"arg0,optional"`
	Sandbox        json.RawMessage   `param:"sandbox,optional,named"`
	Policy         json.RawMessage   `param:"sandboxPolicy,optional,named"`

	start startParams
}

// commandResult is the result of command/exec. Output and exit follow as notifications.
type commandResult struct {
	ProcessID processID `json:"processId"`
	Running   bool      `json:"running"`
	ExitCode  *int      `json:"exitCode"`
	Stdout    *string   `json:"stdout"`
	Stderr    *string   `json:"stderr"`
}

func (p *commandParams) order() (processID, orderKind) { return p.ProcessID, orderStart }

func (p *commandParams) Check() *jsonrpc.Error {
	p.start = startParams{onProcess: p.onProcess, Argv: p.Argv, Cwd: p.Cwd, Env: p.Env, Tty: p.Tty, Arg0: p.Arg0,
		confinedParams: confinedParams{Sandbox: param.Take(&p.Sandbox), Policy: param.Take(&p.Policy)}}
	return p.start.Check()
}

// run starts the process as process/start does, with a terminal or with stdin at end of
// file.
func (p *commandParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	p.start.mode = processMode{legacy: true, window: p.window(r)}
	if _, failed := p.start.run(ctx, r); failed != nil {
		return nil, failed
	}
	return commandResult{ProcessID: p.ProcessID, Running: true}, nil
}

// leastKept is the smallest output limit that the server accepts.
const leastKept = 64 << 10

// window returns the number of bytes to retain of the process; 0 is the server's
// default. The server's limit is for all streams together, the client's for each.
func (p *commandParams) window(r *request) int {
	if p.OutputBytesCap == nil {
		return 0
	}
	streams := uint64(2)
	if p.Tty {
		streams = 1
	}
	most := r.environment.native.GetLimits().GetRetainedOutputBytes()
	kept := max(min(*p.OutputBytesCap, most)*streams, leastKept)
	if kept >= most {
		return 0
	}
	return int(kept)
}

// commandWriteParams is the parameters of command/exec/write.
type commandWriteParams struct {
	onProcess
	Chunk jsonrpc.Base64 `param:"chunk"`
}

// commandWriteResult is the result of command/exec/write.
type commandWriteResult struct {
	Accepted bool `json:"accepted"`
}

func (p *commandWriteParams) order() (processID, orderKind) { return p.ProcessID, orderWrite }

// run writes as process/write does. It returns an error where process/write returns a
// status.
func (p *commandWriteParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	err := r.writeStdin(ctx, p.ProcessID.server(), p.Chunk, func(int) string { return "" })
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED,
		execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return nil, rpcerror.WithCode(err, jsonrpc.CodeInvalidRequest, "stdin of process "+string(p.ProcessID)+" is closed")
	}
	if err != nil {
		return nil, processError(p.ProcessID, err)
	}
	return commandWriteResult{Accepted: true}, nil
}

// commandTerminateParams is the parameters of command/exec/terminate.
type commandTerminateParams struct{ onProcess }

// run terminates as process/terminate without optional parameters does.
func (p *commandTerminateParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return (&terminateParams{onProcess: p.onProcess}).run(ctx, r)
}
