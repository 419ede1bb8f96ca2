package execserver

import (
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// eventParams are the parameters of process/output, process/exited and
// process/closed.
type eventParams struct {
	ProcessID     string         `param:"processId"`
	Seq           uint64         `param:"seq"`
	Stream        string         `param:"stream,optional"`
	Chunk         jsonrpc.Base64 `param:"chunk,optional"`
	Offset        *uint64        `param:"offset"`
	ExitCode      *int64         `param:"exitCode"`
	SandboxDenied *bool          `param:"sandboxDenied"`
	Exit          *wireExit      `param:"exit"`
	Totals        *[]wireTotal   `param:"totals"`
	Gap           *wireGap       `param:"gap"`
}

// wireGap says what was lost before an event.
type wireGap struct {
	FirstAvailableSeq uint64 `param:"firstAvailableSeq"`
	DroppedBytes      uint64 `param:"droppedBytes"`
}

// wireTotal is how much came out of a stream.
type wireTotal struct {
	Stream string `param:"stream"`
	Bytes  uint64 `param:"bytes"`
}

// streams are the streams by the names that the protocol has for them.
var streams = map[string]execwirev1.OutputStream{
	"stdout": execwirev1.OutputStream_OUTPUT_STREAM_STDOUT,
	"stderr": execwirev1.OutputStream_OUTPUT_STREAM_STDERR,
	"pty":    execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL,
}

// streamCount is the number of streams and one for the unspecified.
const streamCount = int(execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL) + 1

// streamOf is the stream with a name. That of a terminal has only one, whatever
// the server calls it.
func (p *process) streamOf(name string) (execwirev1.OutputStream, error) {
	stream, ok := streams[name]
	switch {
	case !ok:
		return 0, protocolErrorf("process %.100q has output of the unknown stream %.100q", p.id, name)
	case p.hasTerminal:
		return execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL, nil
	}
	return stream, nil
}

// kinds are the notifications about processes, and what makes events of them.
var kinds = map[string]func(*process, *eventParams) (*execwirev1.ProcessEvent, error){
	"process/output": (*process).outputEvent,
	"process/exited": (*process).exitedEvent,
	"process/closed": (*process).closedEvent,
}

func (p *process) outputEvent(params *eventParams) (*execwirev1.ProcessEvent, error) {
	stream, err := p.streamOf(params.Stream)
	if err != nil {
		return nil, err
	}
	return outputEvent(params.Seq, stream, params.Chunk, params.Offset), nil
}

// unknownOffset is that of output of which the server does not tell.
const unknownOffset = ^uint64(0)

func outputEvent(seq uint64, stream execwirev1.OutputStream, data []byte, offset *uint64) *execwirev1.ProcessEvent {
	at := unknownOffset
	if offset != nil {
		at = *offset
	}
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Output{
		Output: &execwirev1.ProcessOutput{Stream: stream, Offset: at, Data: data}}}
}

func (p *process) exitedEvent(params *eventParams) (*execwirev1.ProcessEvent, error) {
	if params.ExitCode == nil && params.Exit == nil {
		return nil, protocolErrorf("process %.100q exited without an exit code", p.id)
	}
	return exitedEvent(params.Seq, p.exitOf(params.ExitCode, params.SandboxDenied, params.Exit)), nil
}

func exitedEvent(seq uint64, exit *execwirev1.ExitRecord) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Exited{
		Exited: &execwirev1.ProcessExited{Exit: exit}}}
}

func (p *process) closedEvent(params *eventParams) (*execwirev1.ProcessEvent, error) {
	var totals []*execwirev1.StreamTotal
	if params.Totals != nil {
		for _, total := range *params.Totals {
			stream, err := p.streamOf(total.Stream)
			if err != nil {
				return nil, err
			}
			totals = append(totals, &execwirev1.StreamTotal{Stream: stream, Bytes: total.Bytes})
		}
	}
	return closedEvent(params.Seq, totals), nil
}

func closedEvent(seq uint64, totals []*execwirev1.StreamTotal) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{
		Closed: &execwirev1.ProcessClosed{Totals: totals}}}
}

func gapEvent(firstAvailable, droppedBytes uint64, exact bool) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{
		FirstAvailableSeq: firstAvailable, DroppedBytes: droppedBytes, UpperBound: !exact}}}
}

// wireExit is an exit record as servers have it that tell of processes exactly.
type wireExit struct {
	Code   *int32 `param:"code"`
	Signal *int32 `param:"signal"`
	Cause  string `param:"cause,optional,nullable"`

	ExitedAtMs       *int64  `param:"exitedAtMs"`
	WallTimeUs       *int64  `param:"wallTimeUs"`
	UserTimeUs       *int64  `param:"userTimeUs"`
	SystemTimeUs     *int64  `param:"systemTimeUs"`
	MaxResidentBytes *uint64 `param:"maxResidentBytes"`
}

// causes are why processes end, by the names that the protocol has for that.
var causes = map[string]execwirev1.ExitCause{
	"exited":         execwirev1.ExitCause_EXIT_CAUSE_EXITED,
	"terminated":     execwirev1.ExitCause_EXIT_CAUSE_TERMINATED,
	"timeout":        execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT,
	"noOutput":       execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT,
	"limit":          execwirev1.ExitCause_EXIT_CAUSE_LIMIT,
	"serverShutdown": execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN,
	"lost":           execwirev1.ExitCause_EXIT_CAUSE_LOST,
}

// signalBase is what a server adds to the number of the signal that killed a
// process.
const signalBase = 128

// exitOf is the exit record of a process. Of a server that tells a code alone, a
// process that was killed because this end asked for it is known by that, and every
// other code is taken for what the process passed to exit.
func (p *process) exitOf(code *int64, denied *bool, exact *wireExit) *execwirev1.ExitRecord {
	record := &execwirev1.ExitRecord{Cause: execwirev1.ExitCause_EXIT_CAUSE_EXITED, SandboxDenied: denied != nil && *denied}
	if exact != nil {
		exact.fill(record)
		return record
	}
	terminated := p.wasTerminated()
	if terminated {
		record.Cause = execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
	}
	switch {
	case code == nil, *code < 0 && !terminated, *code > 1<<31-1:
		record.Cause = execwirev1.ExitCause_EXIT_CAUSE_LOST
	case terminated && (*code < 0 || *code == signalBase+int64(unix.SIGKILL)):
		record.Status = &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal_SIGNAL_KILL}
	default:
		record.Status = &execwirev1.ExitRecord_ExitCode{ExitCode: int32(*code)}
	}
	return record
}
