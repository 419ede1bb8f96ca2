package gateway

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// listParams are the parameters of process/list.
type listParams struct {
	PageSize  *uint32 `param:"pageSize,optional"`
	PageToken *string `param:"pageToken,optional"`
	ProcessID *string `param:"processId,named"`
}

// maxPageSize is the most processes on one page of the core.
const maxPageSize = 1000

func (p *listParams) check() *jsonrpc.Error {
	switch {
	case p.PageSize != nil && (*p.PageSize == 0 || *p.PageSize > maxPageSize):
		return invalidMember("pageSize", fmt.Sprintf("is %d: use 1 to %d", *p.PageSize, maxPageSize))
	case p.PageToken != nil && len(*p.PageToken) > maxProcessIDBytes:
		return invalidMember("pageToken", "is not the nextPageToken of an answer")
	}
	return nil
}

// listResult is the result of process/list.
type listResult struct {
	Processes     []listedProcess `json:"processes"`
	NextPageToken *string         `json:"nextPageToken"`

	leave func()
}

var _ noted = (*listResult)(nil)

// listedProcess is a process on a list.
type listedProcess struct {
	ProcessID   string   `json:"processId"`
	PID         int32    `json:"pid"`
	Argv        []string `json:"argv"`
	Cwd         *string  `json:"cwd"`
	Tty         bool     `json:"tty"`
	Rows        uint32   `json:"rows,omitempty"`
	Cols        uint32   `json:"cols,omitempty"`
	SandboxType string   `json:"sandboxType"`
	StartedAtMs int64    `json:"startedAtMs"`
	NextSeq     uint64   `json:"nextSeq"`
	Running     bool     `json:"running"`
	ExitCode    *int64   `json:"exitCode"`
	ExitCause   *string  `json:"exitCause"`
	Closed      bool     `json:"closed"`

	Exit *exactExit `json:"exit,omitempty"`
}

// run lists a page of the session's processes. A page has no more than the core
// puts on one.
func (p *listParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if p.ProcessID != nil {
		return p.runOne(ctx, r)
	}
	leave, failed := r.reads.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	ask := &execwirev1.ListProcessesRequest{SessionId: r.session.id}
	if p.PageSize != nil {
		ask.PageSize = int32(*p.PageSize)
	}
	if p.PageToken != nil {
		ask.PageToken = *p.PageToken
	}
	page, err := r.processes.ListProcesses(ctx, ask, grpc.MaxCallRecvMsgSize(maxCoreMessage))
	if err != nil {
		leave()
		return nil, failureOf(err)
	}
	result := &listResult{Processes: make([]listedProcess, 0, len(page.GetProcesses())), leave: leave}
	for _, described := range page.GetProcesses() {
		result.Processes = append(result.Processes, r.listed(described))
	}
	if token := page.GetNextPageToken(); token != "" {
		result.NextPageToken = &token
	}
	return result, nil
}

// runOne lists the process with the id, or nothing if there is none.
func (p *listParams) runOne(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	described, failed := r.describe(ctx, *p.ProcessID)
	if failed != nil {
		return nil, failed
	}
	result := &listResult{Processes: []listedProcess{}, leave: func() {}}
	if described != nil {
		result.Processes = append(result.Processes, r.listed(described))
	}
	return result, nil
}

func (l *listResult) wasSaid() { l.leave() }

func (c *connection) listed(described *execwirev1.Process) listedProcess {
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
		ExitCause:   exitCauseOrNil(described.GetExit()),
		Closed:      hasClosed(described),
		Exit:        c.exactExitOf(described.GetExit()),
	}
}

// exitCauses are the causes of an end as the protocol has them.
var exitCauses = map[execwirev1.ExitCause]string{
	execwirev1.ExitCause_EXIT_CAUSE_EXITED:          "exited",
	execwirev1.ExitCause_EXIT_CAUSE_TERMINATED:      "terminated",
	execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT:         "timeout",
	execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT:       "noOutput",
	execwirev1.ExitCause_EXIT_CAUSE_LIMIT:           "limit",
	execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN: "serverShutdown",
	execwirev1.ExitCause_EXIT_CAUSE_LOST:            "lost",
}

// exitCauseOrNil is why a process ended, nil while it has not or for a cause
// that is newer than this gateway.
func exitCauseOrNil(exit *execwirev1.ExitRecord) *string {
	if cause, ok := exitCauses[exit.GetCause()]; ok {
		return &cause
	}
	return nil
}
