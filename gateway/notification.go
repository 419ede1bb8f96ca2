package gateway

import (
	"strconv"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// signalBase is what a shell adds to the number of the signal that killed a
// program; clients expect it for an exit code.
const signalBase = 128

// lostExitCode is reported where the core does not know how a process ended.
const lostExitCode = -1

// exitCode is the exit record as the protocol has it.
func exitCode(exit *execwirev1.ExitRecord) int64 {
	switch status := exit.GetStatus().(type) {
	case *execwirev1.ExitRecord_ExitCode:
		return int64(status.ExitCode)
	case *execwirev1.ExitRecord_Signal:
		return signalBase + int64(status.Signal)
	}
	return lostExitCode
}

// exitCodeOrNil is exitCode, nil for a process that has not exited.
func exitCodeOrNil(exit *execwirev1.ExitRecord) *int64 {
	if exit == nil {
		return nil
	}
	code := exitCode(exit)
	return &code
}

// streamName is a stream as the protocol has it.
func streamName(stream execwirev1.OutputStream) string {
	switch stream {
	case execwirev1.OutputStream_OUTPUT_STREAM_STDERR:
		return "stderr"
	case execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL:
		return "pty"
	}
	return "stdout"
}

// appendEvent appends the notification of an event. The name is the process's,
// as JSON; the gap is what was lost before it, nil for nothing; exact adds what
// clients are told that acknowledge. An event of a
// kind that the protocol has no notification for appends nothing.
func appendEvent(dst, name []byte, event *execwirev1.ProcessEvent, gap *execwirev1.OutputGap, exact bool) []byte {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		dst = appendEventHead(dst, `process/output`, name, event.GetSeq())
		dst = append(dst, `,"stream":"`...)
		dst = append(dst, streamName(e.Output.GetStream())...)
		dst = append(dst, `","chunk":`...)
		dst = jsonrpc.AppendBase64(dst, e.Output.GetData())
	case *execwirev1.ProcessEvent_Exited:
		dst = appendEventHead(dst, `process/exited`, name, event.GetSeq())
		dst = append(dst, `,"exitCode":`...)
		dst = strconv.AppendInt(dst, exitCode(e.Exited.GetExit()), 10)
		dst = append(dst, `,"sandboxDenied":`...)
		dst = strconv.AppendBool(dst, e.Exited.GetExit().GetSandboxDenied())
	case *execwirev1.ProcessEvent_Closed:
		dst = appendEventHead(dst, `process/closed`, name, event.GetSeq())
	default:
		return dst
	}
	dst = appendGap(dst, gap)
	if exact {
		if output := event.GetOutput(); output != nil {
			dst = appendOffset(dst, output)
		} else {
			dst = appendExact(dst, event.GetExited().GetExit(), event.GetClosed())
		}
	}
	return append(dst, `}}`...)
}

func appendEventHead(dst []byte, method string, name []byte, seq uint64) []byte {
	dst = append(dst, `{"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":{"processId":`...)
	dst = append(dst, name...)
	dst = append(dst, `,"seq":`...)
	return strconv.AppendUint(dst, seq, 10)
}

// appendGap appends the member that says what was lost, if anything was.
func appendGap(dst []byte, gap *execwirev1.OutputGap) []byte {
	if gap == nil {
		return dst
	}
	dst = append(dst, `,"gap":{"firstAvailableSeq":`...)
	dst = strconv.AppendUint(dst, gap.GetFirstAvailableSeq(), 10)
	dst = append(dst, `,"droppedBytes":`...)
	dst = strconv.AppendUint(dst, gap.GetDroppedBytes(), 10)
	return append(dst, '}')
}
