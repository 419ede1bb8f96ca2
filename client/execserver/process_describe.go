package execserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type listParams struct {
	PageSize  int32   `json:"pageSize,omitempty"`
	PageToken *string `json:"pageToken,omitempty"`
	ProcessID *string `json:"processId,omitempty"`
}

type listResult struct {
	Processes     []listedProcess `param:"processes"`
	NextPageToken *string         `param:"nextPageToken"`
}

// listedProcess is a process on a list.
type listedProcess struct {
	ProcessID   string    `param:"processId"`
	PID         int32     `param:"pid"`
	Argv        []string  `param:"argv"`
	Cwd         *string   `param:"cwd"`
	Tty         bool      `param:"tty"`
	Rows        uint32    `param:"rows,optional"`
	Cols        uint32    `param:"cols,optional"`
	SandboxType string    `param:"sandboxType,optional"`
	StartedAtMs int64     `param:"startedAtMs"`
	NextSeq     uint64    `param:"nextSeq"`
	ExitCode    *int64    `param:"exitCode"`
	ExitCause   *string   `param:"exitCause"`
	Exit        *wireExit `param:"exit"`
	Closed      bool      `param:"closed"`
}

// GetProcess implements the RPC.
func (s *processService) GetProcess(ctx context.Context, r *execwirev1.GetProcessRequest) (*execwirev1.GetProcessResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	described, err := s.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	return &execwirev1.GetProcessResponse{Process: described}, nil
}

// describe asks the server about a process, if it can tell.
func (s *processService) describe(ctx context.Context, p *process) (*execwirev1.Process, error) {
	l, err := s.conn.current(ctx)
	if err != nil {
		return nil, err
	}
	if !l.peer.execwire {
		last, _, _, _ := p.state()
		if _, err := p.read(ctx, l, last, 0, true); err != nil {
			return nil, err
		}
		return p.describe(), nil
	}
	params := listParams{PageSize: maxPageSize, ProcessID: &p.id}
	for {
		var page listResult
		if err := s.conn.callOn(ctx, l, s.conn.places, "process/list", params, &page); err != nil {
			return nil, err
		}
		for i := range page.Processes {
			if page.Processes[i].ProcessID == p.id {
				return s.listed(&page.Processes[i])
			}
		}
		if page.NextPageToken == nil {
			return nil, processNotFound(p.id)
		}
		params.PageToken = page.NextPageToken
	}
}

// maxPageSize is the most processes that a page may have.
const maxPageSize = 1000

// ListProcesses implements the RPC.
func (s *processService) ListProcesses(ctx context.Context, r *execwirev1.ListProcessesRequest) (*execwirev1.ListProcessesResponse, error) {
	if err := s.checkSession(r.GetSessionId()); err != nil {
		return nil, err
	}
	if _, err := s.conn.current(ctx); err != nil {
		return nil, err
	}
	size := r.GetPageSize()
	switch {
	case size < 0:
		return nil, invalidField("page_size", "is negative")
	case size == 0:
		size = 100
	}
	if !s.conn.features().execwire {
		return s.listHere(int(min(size, maxPageSize)), r.GetPageToken()), nil
	}
	params := listParams{PageSize: min(size, maxPageSize)}
	if token := r.GetPageToken(); token != "" {
		params.PageToken = &token
	}
	var page listResult
	if err := s.conn.call(ctx, "process/list", params, &page); err != nil {
		return nil, err
	}
	response := &execwirev1.ListProcessesResponse{}
	for i := range page.Processes {
		described, err := s.listed(&page.Processes[i])
		if err != nil {
			return nil, err
		}
		response.Processes = append(response.Processes, described)
	}
	if page.NextPageToken != nil {
		response.NextPageToken = *page.NextPageToken
	}
	return response, nil
}

// listHere lists what is known here. The token is the id of the last process.
func (s *processService) listHere(size int, after string) *execwirev1.ListProcessesResponse {
	known := s.conn.processes.all()
	slices.SortFunc(known, func(a, b *process) int { return cmp.Compare(a.id, b.id) })
	response := &execwirev1.ListProcessesResponse{}
	for _, p := range known {
		switch {
		case p.id <= after && after != "" || !p.isStarted():
			continue
		case len(response.GetProcesses()) == size:
			response.NextPageToken = response.GetProcesses()[size-1].GetProcessId()
			return response
		}
		response.Processes = append(response.Processes, p.describe())
	}
	return response
}

// listed is a process on a list as the contract has it. Labels and owners are known
// here alone.
func (s *processService) listed(w *listedProcess) (*execwirev1.Process, error) {
	p := s.conn.processes.find(w.ProcessID)
	if p == nil {
		p = newProcess(s.conn, w.ProcessID)
		p.described = &execwirev1.Process{SessionId: s.conn.sessionID(), ProcessId: w.ProcessID}
	}
	described := p.describe()
	described.Pid, described.Argv, described.HasTerminal = w.PID, w.Argv, w.Tty
	described.StartTime = timestamppb.New(time.UnixMilli(w.StartedAtMs))
	if w.Cwd != nil {
		native, err := nativePath(*w.Cwd)
		if err != nil {
			return nil, err
		}
		described.WorkingDirectory = native
	}
	if w.Tty {
		described.TerminalSize = &execwirev1.TerminalSize{Rows: w.Rows, Columns: w.Cols}
	}
	described.LastSeq = max(w.NextSeq, 1) - 1
	described.State, described.Exit = execwirev1.ProcessState_PROCESS_STATE_RUNNING, nil
	if w.ExitCode != nil || w.Exit != nil {
		described.State = execwirev1.ProcessState_PROCESS_STATE_EXITED
		if described.Exit = p.exitOf(w.ExitCode, nil, w.Exit); w.Exit == nil && w.ExitCause != nil {
			described.Exit.Cause = causes[*w.ExitCause]
		}
	}
	if w.Closed {
		described.State = execwirev1.ProcessState_PROCESS_STATE_CLOSED
	}
	return described, nil
}

// SnapshotOutput implements the RPC.
func (s *processService) SnapshotOutput(ctx context.Context, r *execwirev1.SnapshotOutputRequest) (*execwirev1.SnapshotOutputResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	if !s.conn.features().execwire {
		return nil, notInProtocol("a snapshot of the output of a process")
	}
	var result snapshotResult
	if err := s.conn.call(ctx, "process/snapshot", processParams{p.id}, &result); err != nil {
		return nil, err
	}
	described, err := s.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	return &execwirev1.SnapshotOutputResponse{Streams: result.streams(p.hasTerminal), LastSeq: described.GetLastSeq(), Process: described}, nil
}

type snapshotResult struct {
	Stdout   jsonrpc.Base64     `param:"stdout"`
	Stderr   jsonrpc.Base64     `param:"stderr"`
	Terminal jsonrpc.Base64     `param:"terminal"`
	Omitted  map[string]omitted `param:"omitted"`
}

type omitted struct {
	Offset uint64 `param:"offset"`
	Bytes  uint64 `param:"bytes"`
}

// streams are the streams that the process has.
func (r *snapshotResult) streams(hasTerminal bool) (snapshots []*execwirev1.StreamSnapshot) {
	for _, of := range []struct {
		stream execwirev1.OutputStream
		name   string
		said   []byte
	}{
		{execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, "stdout", r.Stdout},
		{execwirev1.OutputStream_OUTPUT_STREAM_STDERR, "stderr", r.Stderr},
		{execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL, "terminal", r.Terminal},
	} {
		if (of.name == "terminal") != hasTerminal {
			continue
		}
		left := r.Omitted[of.name]
		cut := len(of.said)
		if left.Bytes > 0 {
			cut = int(min(left.Offset, uint64(cut)))
		}
		snapshots = append(snapshots, &execwirev1.StreamSnapshot{Stream: of.stream, Head: of.said[:cut], Tail: of.said[cut:],
			OmittedBytes: left.Bytes, TotalBytes: uint64(len(of.said)) + left.Bytes})
	}
	return snapshots
}
