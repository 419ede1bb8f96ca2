package gateway

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// listParams is the parameters of process/list.
type listParams struct {
	PageSize  *uint32 `param:"pageSize,optional"`
	PageToken *string `param:"pageToken,optional"`
}

// maxPageSize is the server's largest page.
const maxPageSize = 1000

func (p *listParams) Check() *jsonrpc.Error {
	switch {
	case p.PageSize != nil && (*p.PageSize == 0 || *p.PageSize > maxPageSize):
		return param.Invalid("pageSize", fmt.Sprintf("is %d: use 1 to %d", *p.PageSize, maxPageSize))
	case p.PageToken != nil && len(*p.PageToken) > maxProcessIDBytes:
		return param.Invalid("pageToken", "is not the nextPageToken of an answer")
	}
	return nil
}

// listResult is the result of process/list.
type listResult struct {
	Processes     []listedProcess `json:"processes"`
	NextPageToken *string         `json:"nextPageToken"`

	release func()
}

var _ call.SendObserver = (*listResult)(nil)

// listedProcess is a process in the list.
type listedProcess struct {
	ProcessID   processID `json:"processId"`
	PID         int32     `json:"pid"`
	Argv        []string  `json:"argv"`
	Cwd         *string   `json:"cwd"`
	Tty         bool      `json:"tty"`
	Rows        uint32    `json:"rows,omitempty"`
	Cols        uint32    `json:"cols,omitempty"`
	SandboxType string    `json:"sandboxType"`
	StartedAtMs int64     `json:"startedAtMs"`
	NextSeq     uint64    `json:"nextSeq"`
	Running     bool      `json:"running"`
	ExitCode    *int64    `json:"exitCode"`
	ExitCause   *string   `json:"exitCause"`
	Closed      bool      `json:"closed"`
}

func (p *listParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return r.outputAnswers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) { return p.list(ctx, r, release) })
}

// list returns a page of the session's processes, at most as large as the server's.
func (p *listParams) list(ctx context.Context, r *request, release func()) (any, *jsonrpc.Error) {
	ask := &execwirev1.ListProcessesRequest{SessionId: r.session.id}
	if p.PageSize != nil {
		ask.PageSize = int32(*p.PageSize)
	}
	if p.PageToken != nil {
		ask.PageToken = *p.PageToken
	}
	page, err := r.processes.ListProcesses(ctx, ask, grpc.MaxCallRecvMsgSize(call.MaxServerMessage))
	if err != nil {
		return nil, rpcerror.Of(err)
	}
	result := &listResult{Processes: make([]listedProcess, 0, len(page.GetProcesses())), release: release}
	for _, described := range page.GetProcesses() {
		result.Processes = append(result.Processes, listed(described))
	}
	if token := page.GetNextPageToken(); token != "" {
		result.NextPageToken = &token
	}
	return result, nil
}

func (l *listResult) Sent() { l.release() }

func listed(described *execwirev1.Process) listedProcess {
	return listedProcess{
		ProcessID:   clientProcessID(described.GetProcessId()),
		PID:         described.GetPid(),
		Argv:        described.GetArgv(),
		Cwd:         fileURI(described.GetWorkingDirectory()),
		Tty:         described.GetHasTerminal(),
		Rows:        described.GetTerminalSize().GetRows(),
		Cols:        described.GetTerminalSize().GetColumns(),
		SandboxType: sandboxType(described),
		StartedAtMs: described.GetStartTime().AsTime().UnixMilli(),
		NextSeq:     described.GetLastSeq() + 1,
		Running:     described.GetExit() == nil,
		ExitCode:    exitCodeOrNil(described.GetExit()),
		ExitCause:   nameOrNil(exitCauses, described.GetExit().GetCause()),
		Closed:      hasClosed(described),
	}
}
