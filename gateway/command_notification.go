package gateway

import (
	"strconv"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// appendEvent appends the notification of an event, in the dialect of the
// process; nothing for an event that has none. exact is whether the client is told
// of processes exactly. It is called by who speaks of the process.
func (p *process) appendEvent(dst []byte, event *execwirev1.ProcessEvent, exact bool) []byte {
	if p.manner.older {
		return p.appendCommandEvent(dst, event)
	}
	return appendEvent(dst, p.name, event, p.gap, exact)
}

// appendCommandEvent is appendEvent for the older dialect, which has one
// notification for the end.
func (p *process) appendCommandEvent(dst []byte, event *execwirev1.ProcessEvent) []byte {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		dst = p.appendCommandHead(dst, `command/exec/outputDelta`)
		dst = append(dst, `,"stream":"`...)
		dst = append(dst, commandStreamName(e.Output.GetStream())...)
		dst = append(dst, `","chunk":`...)
		dst = jsonrpc.AppendBase64(dst, e.Output.GetData())
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, event.GetSeq(), 10)
		dst = appendGap(dst, p.gap)
		return append(dst, `}}`...)
	case *execwirev1.ProcessEvent_Closed:
		if p.exit > 0 && !p.exitSaid { // else it was told, perhaps over another connection
			return p.appendCommandExited(dst)
		}
	}
	return dst
}

// appendCommandExited appends the only notification of the end of a process in
// the older dialect.
func (p *process) appendCommandExited(dst []byte) []byte {
	p.exitSaid = true
	dst = p.appendCommandHead(dst, `command/exec/exited`)
	dst = append(dst, `,"exitCode":`...)
	dst = strconv.AppendInt(dst, exitCode(p.ended), 10)
	dst = appendGap(dst, p.gap)
	return append(dst, `}}`...)
}

func (p *process) appendCommandHead(dst []byte, method string) []byte {
	dst = append(dst, `{"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":{"processId":`...)
	return append(dst, p.name...)
}

// commandStreamName is a stream as the older dialect has it: a terminal is one
// stream of output.
func commandStreamName(stream execwirev1.OutputStream) string {
	if stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
		return "stderr"
	}
	return "stdout"
}
