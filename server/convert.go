package server

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// outputMessages is an output event with everything it points to, so that a
// batch of events is one allocation.
type outputMessages struct {
	event  execwirev1.ProcessEvent
	kind   execwirev1.ProcessEvent_Output
	output execwirev1.ProcessOutput
}

// toEvents translates what a reader got. The data is not copied: the messages
// alias the log, which never changes it.
func toEvents(p *session.Process, batch eventlog.Batch) []*execwirev1.ProcessEvent {
	events := make([]*execwirev1.ProcessEvent, 0, len(batch.Events)+1)
	if gap := batch.Gap; gap != nil {
		events = append(events, &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{
			FirstAvailableSeq: gap.FirstAvailableSeq, DroppedBytes: gap.DroppedBytes, UpperBound: gap.Inexact}}})
	}
	slab := make([]outputMessages, len(batch.Events))
	for i := range batch.Events {
		e := &batch.Events[i]
		switch e.Kind {
		case eventlog.Output:
			m := &slab[i]
			m.output.Stream, m.output.Offset, m.output.Data = toStream(e.Stream), e.Offset, e.Data
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

func toStream(s eventlog.Stream) execwirev1.OutputStream {
	switch s {
	case eventlog.Stdout:
		return execwirev1.OutputStream_OUTPUT_STREAM_STDOUT
	case eventlog.Stderr:
		return execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	case eventlog.Terminal:
		return execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL
	default:
		return execwirev1.OutputStream_OUTPUT_STREAM_UNSPECIFIED
	}
}

// toExit returns the exit record, or nil while the process runs.
func toExit(p *session.Process) *execwirev1.ExitRecord {
	record, known := p.Exit()
	if !known {
		return nil
	}
	exit := &execwirev1.ExitRecord{
		Cause: toCause(record.Cause),

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
	case record.Cause == process.CauseLost:
	case record.Signal != 0:
		exit.Status = &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal(record.Signal)}
	default:
		exit.Status = &execwirev1.ExitRecord_ExitCode{ExitCode: int32(record.Code)}
	}
	return exit
}

func toCause(c process.Cause) execwirev1.ExitCause {
	switch c {
	case process.CauseExited:
		return execwirev1.ExitCause_EXIT_CAUSE_EXITED
	case process.CauseTerminated:
		return execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
	case process.CauseTimeout:
		return execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT
	case process.CauseNoOutput:
		return execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT
	case process.CauseLimit:
		return execwirev1.ExitCause_EXIT_CAUSE_LIMIT
	case process.CauseServerShutdown:
		return execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN
	default:
		return execwirev1.ExitCause_EXIT_CAUSE_LOST
	}
}

func toState(s process.State) execwirev1.ProcessState {
	switch s {
	case process.StateStarting:
		return execwirev1.ProcessState_PROCESS_STATE_STARTING
	case process.StateRunning:
		return execwirev1.ProcessState_PROCESS_STATE_RUNNING
	case process.StateExited:
		return execwirev1.ProcessState_PROCESS_STATE_EXITED
	default:
		return execwirev1.ProcessState_PROCESS_STATE_CLOSED
	}
}

// streamsOf lists the streams that a process has.
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
		totals = append(totals, &execwirev1.StreamTotal{Stream: toStream(stream), Bytes: stats.Totals[stream]})
	}
	return totals
}

// toProcess describes a process as it is now.
func toProcess(p *session.Process) *execwirev1.Process {
	spec, stats := p.Spec(), p.Log().Stats()
	m := &execwirev1.Process{
		SessionId:         p.SessionID(),
		ProcessId:         p.ID(),
		State:             toState(p.State()),
		Pid:               int32(p.PID()),
		Argv:              spec.Argv,
		WorkingDirectory:  spec.Cwd,
		StartTime:         timestamppb.New(p.StartedAt()),
		Exit:              toExit(p),
		LastSeq:           stats.LastSeq,
		FirstAvailableSeq: stats.FirstRetainedSeq,
		Owned:             p.Owned(),
		Labels:            spec.Labels,
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
