package admin

import (
	"cmp"
	"context"
	"path"
	"runtime"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/session"
)

// Limits of GetStatus.
const (
	maxStatusSessions      = 10000
	maxStatusProcesses     = 10000
	defaultStatusProcesses = 1000
	maxProgramBytes        = 64
)

// states translates states of processes.
var states = map[process.State]execwirev1.ProcessState{
	process.StateRunning: execwirev1.ProcessState_PROCESS_STATE_RUNNING,
	process.StateExited:  execwirev1.ProcessState_PROCESS_STATE_EXITED,
	process.StateClosed:  execwirev1.ProcessState_PROCESS_STATE_CLOSED,
}

// GetStatus implements the RPC.
func (s *service) GetStatus(_ context.Context, req *execwirev1.GetStatusRequest) (*execwirev1.GetStatusResponse, error) {
	most := int(cmp.Or(req.GetMaxProcesses(), defaultStatusProcesses))
	if most > maxStatusProcesses {
		return nil, status.Errorf(codes.InvalidArgument, "max_processes must be at most %d", maxStatusProcesses)
	}
	response := &execwirev1.GetStatusResponse{Time: timestamppb.Now(), Server: s.serverStatus()}
	var processes []*process.Process
	for _, of := range s.sessions.All() {
		if len(response.Sessions) == maxStatusSessions {
			response.Truncated = true
			break
		}
		list, more := of.Processes("", most-len(response.Processes))
		response.Truncated = response.Truncated || more
		if !of.HasLease() && len(list) == 0 && !more {
			continue
		}
		response.Sessions = append(response.Sessions, &execwirev1.SessionStatus{
			Principal: of.Principal(), SessionId: of.ID(), Attached: of.HasLease() && of.Info("").Attached})
		for _, p := range list {
			response.Processes = append(response.Processes, processStatus(of, p))
			processes = append(processes, p.Process)
		}
	}
	used, err := process.UsageOf(processes)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to read /proc: %v", err)
	}
	for i, of := range used {
		response.Processes[i].CpuTime, response.Processes[i].ResidentBytes = durationpb.New(of.CPU), uint64(of.ResidentBytes)
	}
	return response, nil
}

func (s *service) serverStatus() *execwirev1.ServerStatus {
	used, _ := procfs.ReadUsage(0) // unknown is zero
	counted := s.counts()
	return &execwirev1.ServerStatus{CpuTime: durationpb.New(used.CPU), ResidentBytes: uint64(used.ResidentBytes), Goroutines: uint32(runtime.NumGoroutine()),
		StartedProcesses: counted.Started, FailedStarts: counted.FailedStarts,
		StartTimes: toDurationCounts(counted.StartTimes), CallTimes: toDurationCounts(counted.CallTimes)}
}

func toDurationCounts(d Durations) *execwirev1.DurationCounts {
	return &execwirev1.DurationCounts{UpperBounds: d.Bounds, Counts: d.Counts}
}

func processStatus(of *session.Session, p *session.Process) *execwirev1.ProcessStatus {
	log, spec := p.Log().Stats(), p.Spec()
	program := path.Base(cmp.Or(spec.Executable, spec.Argv[0]))
	total := uint64(0)
	for _, bytes := range log.Totals {
		total += bytes
	}
	return &execwirev1.ProcessStatus{
		Principal: of.Principal(), SessionId: of.ID(), ProcessId: p.ID(), Pid: int32(p.PID()), State: states[p.State()],
		Program: strings.ToValidUTF8(program[:min(len(program), maxProgramBytes)], ""), StartTime: timestamppb.New(p.StartedAt()),
		OutputBytes: total, RetainedBytes: uint64(log.RetainedBytes), UnacknowledgedBytes: uint64(log.UnacknowledgedBytes),
		Owned: log.Owned, Readers: uint32(log.Readers), FileBytes: log.FileBytes,
	}
}
