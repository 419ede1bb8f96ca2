package gateway

import (
	"context"
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// commandParams are the parameters of command/exec, by which the older dialect
// starts a process.
type commandParams struct {
	ProcessID      string            `param:"processId"`
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

// commandResult is the result of command/exec. What a process says and how it
// ends comes in notifications.
type commandResult struct {
	ProcessID string  `json:"processId"`
	Running   bool    `json:"running"`
	ExitCode  *int    `json:"exitCode"`
	Stdout    *string `json:"stdout"`
	Stderr    *string `json:"stderr"`
}

func (p *commandParams) order() (string, place) { return p.ProcessID, placeStart }

func (p *commandParams) check() *jsonrpc.Error {
	p.start = startParams{ProcessID: p.ProcessID, Argv: p.Argv, Cwd: p.Cwd, Env: p.Env, Tty: p.Tty, Arg0: p.Arg0,
		Sandbox: takeRaw(&p.Sandbox), Policy: takeRaw(&p.Policy)}
	return p.start.check()
}

// run starts the process as process/start does, with its stdin at its end or a
// terminal.
func (p *commandParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	p.start.manner = manner{older: true, window: p.window(r)}
	if _, failed := p.start.run(ctx, r); failed != nil {
		return nil, failed
	}
	return commandResult{ProcessID: p.ProcessID, Running: true}, nil
}

// leastKept is the least output that the core lets a process ask to be kept of
// it.
const leastKept = 64 << 10

// window is how much output is kept of the process, 0 for as much as the core
// keeps of any. The core bounds all streams together, the client each.
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
