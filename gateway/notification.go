package gateway

import (
	"strconv"
	"strings"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// signalBase plus the signal is the exit code of a process killed by a signal, as in a
// shell.
const signalBase = 128

// lostExitCode is the exit code if the server does not know how the process ended.
const lostExitCode = -1

// exitCode returns the exit code of an exit record.
func exitCode(exit *execwirev1.ExitRecord) int64 {
	switch ended := exit.GetStatus().(type) {
	case *execwirev1.ExitRecord_ExitCode:
		return int64(ended.ExitCode)
	case *execwirev1.ExitRecord_Signal:
		return signalBase + int64(ended.Signal)
	}
	return lostExitCode
}

// exitCauses are the protocol's names of causes, as far as this gateway knows them.
var exitCauses = map[execwirev1.ExitCause]string{
	execwirev1.ExitCause_EXIT_CAUSE_EXITED:           "exited",
	execwirev1.ExitCause_EXIT_CAUSE_TERMINATED:       "terminated",
	execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT:          "timeout",
	execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT:        "noOutput",
	execwirev1.ExitCause_EXIT_CAUSE_LIMIT:            "limit",
	execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN:  "serverShutdown",
	execwirev1.ExitCause_EXIT_CAUSE_LOST:             "lost",
	execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED: "serverRestarted",
}

// gapCauses are the protocol's names of causes, as far as this gateway knows them.
var gapCauses = map[execwirev1.GapCause]string{
	execwirev1.GapCause_GAP_CAUSE_LIMIT:        "limit",
	execwirev1.GapCause_GAP_CAUSE_FILES_FULL:   "filesFull",
	execwirev1.GapCause_GAP_CAUSE_DISK_FULL:    "diskFull",
	execwirev1.GapCause_GAP_CAUSE_WRITE_FAILED: "writeFailed",
	execwirev1.GapCause_GAP_CAUSE_READ_FAILED:  "readFailed",
}

// exitCodeOrNil is exitCode, and nil for a process that has not exited.
func exitCodeOrNil(exit *execwirev1.ExitRecord) *int64 {
	if exit == nil {
		return nil
	}
	code := exitCode(exit)
	return &code
}

// streamName returns the protocol's name of a stream.
func streamName(stream execwirev1.OutputStream) string {
	switch stream {
	case execwirev1.OutputStream_OUTPUT_STREAM_STDERR:
		return "stderr"
	case execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL:
		return "pty"
	}
	return "stdout"
}

// appendEvent appends the notification of an event in the dialect of the process, with
// the loss before it; nothing for an event without one. The older dialect has a single
// notification for exit and close, and no name for a terminal. Only the delivering
// goroutine calls it.
func (p *process) appendEvent(dst []byte, event *execwirev1.ProcessEvent) []byte {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		method, stream := `process/output`, streamName(e.Output.GetStream())
		if p.mode.legacy {
			method = `command/exec/outputDelta`
			stream = strings.Replace(stream, "pty", "stdout", 1)
		}
		dst = appendSeq(p.appendHead(dst, method), event.GetSeq())
		dst = append(dst, `,"stream":"`...)
		dst = append(dst, stream...)
		dst = append(dst, `","chunk":`...)
		dst = jsonrpc.AppendBase64(dst, e.Output.GetData())
	case *execwirev1.ProcessEvent_Exited:
		if p.mode.legacy {
			return dst
		}
		dst = appendSeq(p.appendHead(dst, `process/exited`), event.GetSeq())
		dst = append(dst, `,"exitCode":`...)
		dst = strconv.AppendInt(dst, exitCode(e.Exited.GetExit()), 10)
		dst = append(dst, `,"sandboxDenied":`...)
		dst = strconv.AppendBool(dst, e.Exited.GetExit().GetSandboxDenied())
	case *execwirev1.ProcessEvent_Closed:
		switch {
		case !p.mode.legacy:
			dst = appendSeq(p.appendHead(dst, `process/closed`), event.GetSeq())
		case p.exit > 0 && !p.exitSent: // otherwise it was sent already, perhaps over another connection
			return p.appendCommandExited(dst)
		default:
			return dst
		}
	default:
		return dst
	}
	return append(appendGap(dst, p.gap), `}}`...)
}

// appendCommandExited appends the exit notification of the older dialect.
func (p *process) appendCommandExited(dst []byte) []byte {
	p.exitSent = true
	dst = p.appendHead(dst, `command/exec/exited`)
	dst = append(dst, `,"exitCode":`...)
	dst = strconv.AppendInt(dst, exitCode(p.ended), 10)
	return append(appendGap(dst, p.gap), `}}`...)
}

func (p *process) appendHead(dst []byte, method string) []byte {
	dst = append(dst, `{"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":{"processId":`...)
	return append(dst, p.name...)
}

func appendSeq(dst []byte, seq uint64) []byte {
	return strconv.AppendUint(append(dst, `,"seq":`...), seq, 10)
}

// appendGap appends the member for a loss, if any.
func appendGap(dst []byte, gap *execwirev1.OutputGap) []byte {
	if gap == nil {
		return dst
	}
	dst = append(dst, `,"gap":{"firstAvailableSeq":`...)
	dst = strconv.AppendUint(dst, gap.GetFirstAvailableSeq(), 10)
	dst = append(dst, `,"droppedBytes":`...)
	dst = strconv.AppendUint(dst, gap.GetDroppedBytes(), 10)
	if cause, ok := gapCauses[gap.GetCause()]; ok {
		dst = append(dst, `,"cause":"`...)
		dst = append(dst, cause...)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// Optional notifications.
const (
	notifyStarted = "process/started"
	notifyFailed  = "process/failed"
)

// subscribable are all optional notifications.
var subscribable = []string{notifyStarted, notifyFailed}

// startedParams is the parameters of process/started.
type startedParams struct {
	ProcessID   processID `json:"processId"`
	PID         int32     `json:"pid"`
	StartedAtMs int64     `json:"startedAtMs"`
}

// failedParams is the parameters of process/failed.
type failedParams struct {
	ProcessID processID      `json:"processId"`
	Error     *jsonrpc.Error `json:"error"`
}

func appendFailed(dst []byte, id processID, failed *jsonrpc.Error) []byte {
	return jsonrpc.AppendNotification(dst, notifyFailed, failedParams{
		ProcessID: id, Error: failed})
}
