package server

import (
	"os"
	"sync"
	"syscall"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// outputMessages is an output event with everything it points to, so that a batch of
// events is one allocation.
type outputMessages struct {
	event  execwirev1.ProcessEvent
	kind   execwirev1.ProcessEvent_Output
	output execwirev1.ProcessOutput
	time   timestamppb.Timestamp
}

// toEvents translates a batch. The data is not copied: the messages alias the log,
// which does not change it for as long as the batch is valid.
func toEvents(p *session.Process, batch eventlog.Batch) []*execwirev1.ProcessEvent {
	events := make([]*execwirev1.ProcessEvent, 0, len(batch.Events)+1)
	if gap := batch.Gap; gap != nil {
		events = append(events, &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{
			FirstAvailableSeq: gap.FirstAvailableSeq, DroppedBytes: gap.DroppedBytes, UpperBound: gap.Inexact, Cause: gapCauses[gap.Cause]}}})
	}
	slab := make([]outputMessages, len(batch.Events))
	for i := range batch.Events {
		e := &batch.Events[i]
		switch e.Kind {
		case eventlog.Output:
			m := &slab[i]
			m.output.Stream, m.output.Offset, m.output.Data = outputStreams[e.Stream], e.Offset, e.Data
			m.time.Seconds, m.time.Nanos = e.UnixNano/1e9, int32(e.UnixNano%1e9)
			m.output.ReadTime = &m.time
			m.kind.Output = &m.output
			m.event.Seq, m.event.Event = e.Seq, &m.kind
			events = append(events, &m.event)
		case eventlog.Exited:
			events = append(events, &execwirev1.ProcessEvent{Seq: e.Seq, Event: &execwirev1.ProcessEvent_Exited{
				Exited: &execwirev1.ProcessExited{Exit: toExit(p)}}})
		case eventlog.Closed:
			events = append(events, &execwirev1.ProcessEvent{Seq: e.Seq, Event: &execwirev1.ProcessEvent_Closed{
				Closed: &execwirev1.ProcessClosed{Totals: toTotals(p)}}})
		}
	}
	return events
}

// gapCauses translates causes of gaps.
var gapCauses = [...]execwirev1.GapCause{
	eventlog.Evicted:     execwirev1.GapCause_GAP_CAUSE_LIMIT,
	eventlog.FilesFull:   execwirev1.GapCause_GAP_CAUSE_FILES_FULL,
	eventlog.DiskFull:    execwirev1.GapCause_GAP_CAUSE_DISK_FULL,
	eventlog.WriteFailed: execwirev1.GapCause_GAP_CAUSE_WRITE_FAILED,
	eventlog.ReadFailed:  execwirev1.GapCause_GAP_CAUSE_READ_FAILED,
}

// outputStreams translates streams.
var outputStreams = [...]execwirev1.OutputStream{
	eventlog.Stdout:   execwirev1.OutputStream_OUTPUT_STREAM_STDOUT,
	eventlog.Stderr:   execwirev1.OutputStream_OUTPUT_STREAM_STDERR,
	eventlog.Terminal: execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL,
}

// toExit returns the exit record, or nil while the process runs.
func toExit(p *session.Process) *execwirev1.ExitRecord {
	record, known := p.Exit()
	if !known {
		return nil
	}
	exit := &execwirev1.ExitRecord{
		Cause: exitCauses[record.Cause],

		SandboxDenied: record.SandboxDenied,

		ExitTime: timestamppb.New(record.ExitedAt),
		WallTime: durationpb.New(record.WallTime),
		Usage: &execwirev1.ResourceUsage{
			UserTime:         durationpb.New(record.UserTime),
			SystemTime:       durationpb.New(record.SystemTime),
			MaxResidentBytes: uint64(record.MaxRSSBytes),
		},
	}
	switch {
	case !record.Cause.HasStatus():
	case record.Signal != 0:
		exit.Status = &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal(record.Signal)}
	default:
		exit.Status = &execwirev1.ExitRecord_ExitCode{ExitCode: int32(record.Code)}
	}
	return exit
}

// exitCauses translates causes of an exit.
var exitCauses = map[process.Cause]execwirev1.ExitCause{
	process.CauseExited:          execwirev1.ExitCause_EXIT_CAUSE_EXITED,
	process.CauseTerminated:      execwirev1.ExitCause_EXIT_CAUSE_TERMINATED,
	process.CauseTimeout:         execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT,
	process.CauseNoOutput:        execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT,
	process.CauseLimit:           execwirev1.ExitCause_EXIT_CAUSE_LIMIT,
	process.CauseServerShutdown:  execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN,
	process.CauseServerRestarted: execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED,
	process.CauseLost:            execwirev1.ExitCause_EXIT_CAUSE_LOST,
}

// processStates translates states.
var processStates = map[process.State]execwirev1.ProcessState{
	process.StateStarting: execwirev1.ProcessState_PROCESS_STATE_STARTING,
	process.StateRunning:  execwirev1.ProcessState_PROCESS_STATE_RUNNING,
	process.StateExited:   execwirev1.ProcessState_PROCESS_STATE_EXITED,
	process.StateClosed:   execwirev1.ProcessState_PROCESS_STATE_CLOSED,
}

// streamsOf returns the streams of a process.
func streamsOf(p *session.Process) []eventlog.Stream {
	if p.Spec().Terminal != nil {
		return []eventlog.Stream{eventlog.Terminal}
	}
	return []eventlog.Stream{eventlog.Stdout, eventlog.Stderr}
}

func toTotals(p *session.Process) []*execwirev1.StreamTotal {
	stats := p.Log().Stats()
	var totals []*execwirev1.StreamTotal
	for _, stream := range streamsOf(p) {
		totals = append(totals, &execwirev1.StreamTotal{Stream: outputStreams[stream], Bytes: stats.Totals[stream]})
	}
	return totals
}

// toProcess describes a process at this moment.
func toProcess(p *session.Process) *execwirev1.Process {
	spec := p.Spec()
	// The order matters: the last seq of a process that has closed is final.
	state, exit := p.State(), toExit(p)
	stats := p.Log().Stats()
	m := &execwirev1.Process{
		SessionId:         p.SessionID(),
		ProcessId:         p.ID(),
		State:             processStates[state],
		Pid:               int32(p.PID()),
		Argv:              spec.Argv,
		WorkingDirectory:  spec.Cwd,
		StartTime:         timestamppb.New(p.StartedAt()),
		Exit:              exit,
		LastSeq:           stats.LastSeq,
		FirstAvailableSeq: stats.FirstAvailableSeq,
		Owned:             p.Owned(),
		Labels:            spec.Labels,
		User:              ownUser(),
	}
	if spec.User != nil {
		m.User = spec.User.String()
	}
	if report, confined := p.Sandbox(); confined {
		m.Sandbox = toSandboxReport(report)
	}
	if spec.Terminal != nil {
		size := p.WindowSize()
		m.HasTerminal = true
		m.TerminalSize = &execwirev1.TerminalSize{Rows: uint32(size.Rows), Columns: uint32(size.Cols)}
	}
	return m
}

// lastOutput returns the last bytes of each stream of a process that has any.
func lastOutput(p *session.Process, most int) (tails []*execwirev1.StreamTail) {
	if most == 0 {
		return nil
	}
	for _, stream := range streamsOf(p) {
		if data := p.Log().Tail(stream, most); len(data) > 0 {
			tails = append(tails, &execwirev1.StreamTail{Stream: outputStreams[stream], Data: data})
		}
	}
	return tails
}

// ownUser returns the user of processes that name none.
var ownUser = sync.OnceValue(func() string { return osuser.ByUID(os.Geteuid()).String() })

// toSignal translates a signal: the contract's numbers are Linux's.
func toSignal(s execwirev1.Signal) syscall.Signal { return syscall.Signal(s) }

// signalTargets translates targets of signals.
var signalTargets = map[execwirev1.SignalTarget]process.Target{
	execwirev1.SignalTarget_SIGNAL_TARGET_UNSPECIFIED: process.TargetGroup,
	execwirev1.SignalTarget_SIGNAL_TARGET_GROUP:       process.TargetGroup,
	execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS:     process.TargetProcess,
	execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND:  process.TargetForeground,
}

func toWindowSize(m *execwirev1.TerminalSize) process.WindowSize {
	return process.WindowSize{Rows: uint16(m.GetRows()), Cols: uint16(m.GetColumns())}
}

// killMethods translates ways of killing.
var killMethods = map[process.Method]execwirev1.KillMethod{
	process.MethodProcessGroup: execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP,
	process.MethodDescendants:  execwirev1.KillMethod_KILL_METHOD_DESCENDANTS,
	process.MethodCgroup:       execwirev1.KillMethod_KILL_METHOD_CGROUP,
}
