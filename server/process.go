package server

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// processService implements execwire.v1.ProcessService; the proto documents its
// methods.
type processService struct {
	execwirev1.UnsafeProcessServiceServer
	server *Server
}

var _ execwirev1.ProcessServiceServer = (*processService)(nil)

// StartProcess implements the RPC.
func (s *processService) StartProcess(ctx context.Context, req *execwirev1.StartProcessRequest) (*execwirev1.StartProcessResponse, error) {
	p, _, err := s.start(ctx, req)
	if err != nil {
		return nil, err
	}
	return &execwirev1.StartProcessResponse{Process: toProcess(p)}, nil
}

// WriteStdin implements the RPC.
func (s *processService) WriteStdin(ctx context.Context, req *execwirev1.WriteStdinRequest) (*execwirev1.WriteStdinResponse, error) {
	if req.GetOwnerId() != "" {
		return s.server.writeOwned(ctx, req)
	}
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &execwirev1.WriteStdinResponse{}, p.WriteStdinOnce(ctx, req.GetWriteId(), req.GetData())
}

// CloseStdin implements the RPC.
func (s *processService) CloseStdin(ctx context.Context, req *execwirev1.CloseStdinRequest) (*execwirev1.CloseStdinResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &execwirev1.CloseStdinResponse{}, p.CloseStdin(ctx)
}

// ResizeTerminal implements the RPC.
func (s *processService) ResizeTerminal(ctx context.Context, req *execwirev1.ResizeTerminalRequest) (*execwirev1.ResizeTerminalResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &execwirev1.ResizeTerminalResponse{}, p.Resize(toWindowSize(req.GetSize()))
}

// SignalProcess implements the RPC.
func (s *processService) SignalProcess(ctx context.Context, req *execwirev1.SignalProcessRequest) (*execwirev1.SignalProcessResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	return &execwirev1.SignalProcessResponse{}, p.Signal(toSignal(req.GetSignal()), signalTargets[req.GetTarget()])
}

// TerminateProcess implements the RPC.
func (s *processService) TerminateProcess(ctx context.Context, req *execwirev1.TerminateProcessRequest) (*execwirev1.TerminateProcessResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	result, err := p.Terminate(ctx, toTermination(req.GetTermination()))
	if err != nil {
		return nil, err
	}
	resp := &execwirev1.TerminateProcessResponse{
		WasRunning:    result.WasRunning,
		Exit:          toExit(p),
		Method:        killMethods[result.Method],
		VerifiedEmpty: result.Verified,
	}
	if resp.Exit != nil {
		markSeen(ctx, p)
	}
	return resp, nil
}

// GetProcess implements the RPC.
func (s *processService) GetProcess(ctx context.Context, req *execwirev1.GetProcessRequest) (*execwirev1.GetProcessResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	response := &execwirev1.GetProcessResponse{Process: toProcess(p), InstanceId: s.server.instance}
	if req.GetWithUsage() {
		response.Usage, err = usageOf(p)
	}
	return response, err
}

// usageOf returns what a process uses; nil if it has closed.
func usageOf(p *session.Process) (*execwirev1.ProcessUsage, error) {
	used, err := process.UsageOf([]*process.Process{p.Process})
	if err != nil || used[0].Programs == 0 {
		return nil, err
	}
	output := uint64(0)
	for _, bytes := range p.Log().Stats().Totals {
		output += bytes
	}
	return &execwirev1.ProcessUsage{Time: timestamppb.Now(), CpuTime: durationpb.New(used[0].CPU), ResidentBytes: uint64(used[0].ResidentBytes),
		Programs: uint32(used[0].Programs), OutputBytes: output}, nil
}

// Page sizes of lists.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxPageBytes    = 1 << 20 // records contain arguments and grants, which can be long
	maxLastOutput   = 4 << 10 // of each stream of a process in a list
)

// pageSize applies the default and the maximum to a requested size.
func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPageSize
	}
	return min(int(asked), maxPageSize)
}

// page translates a list up to the size of a page. more is set if there is more than
// the list. The token of the next page, if there is one, is the id of the last item, so
// that pages stay correct while items are added and removed.
func page[T any, M proto.Message](list []T, more bool, translate func(T) M, id func(T) string) (messages []M, next string) {
	size := 0
	for i, item := range list {
		m := translate(item)
		messages = append(messages, m)
		size += proto.Size(m)
		if last := i+1 == len(list); last && more || !last && size > maxPageBytes {
			return messages, id(item)
		}
	}
	return messages, ""
}

// ListProcesses implements the RPC.
func (s *processService) ListProcesses(ctx context.Context, req *execwirev1.ListProcessesRequest) (*execwirev1.ListProcessesResponse, error) {
	sess, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	list, more := sess.Processes(req.GetPageToken(), pageSize(req.GetPageSize()))
	processes, next := page(list, more, func(p *session.Process) *execwirev1.Process {
		m := toProcess(p)
		m.LastOutput = lastOutput(p, int(min(req.GetLastOutputBytes(), maxLastOutput)))
		return m
	}, (*session.Process).ID)
	return &execwirev1.ListProcessesResponse{Processes: processes, NextPageToken: next}, nil
}
