package client

import (
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// streamCount is the number of output streams plus one for the unspecified.
const streamCount = int(execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL) + 1

// eventWriter writes the output of a process: every event once, in order, and nothing
// missing without a gap.
type eventWriter struct {
	writers [streamCount]io.Writer
	onGap   func(*execwirev1.OutputGap)
	// onExited may be nil; it is set to nil after the call.
	onExited func()

	// last is the seq of the last event.
	last uint64
	// offsets are the next offsets of each stream, including dropped bytes.
	offsets [streamCount]uint64
	// gap is whether the next output of a stream may have a higher offset.
	gap [streamCount]bool
	// unknownStart is whether the offset of the first output of a stream is unknown,
	// because reading began in the middle.
	unknownStart [streamCount]bool
	// dropped is the number of bytes missing in gaps, by the offsets after them: a gap
	// itself may have an upper bound only.
	dropped uint64
	exit    *execwirev1.ExitRecord
	closed  bool
}

func newEventWriter(options RunOptions) eventWriter {
	orDiscard := func(w io.Writer) io.Writer {
		if w == nil {
			return io.Discard
		}
		return w
	}
	stdout, stderr := orDiscard(options.Stdout), orDiscard(options.Stderr)
	w := eventWriter{onGap: options.OnGap, onExited: options.OnExited}
	w.writers[execwirev1.OutputStream_OUTPUT_STREAM_STDOUT] = stdout
	w.writers[execwirev1.OutputStream_OUTPUT_STREAM_STDERR] = stderr
	w.writers[execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL] = stdout
	return w
}

// startAfter begins after an event that another reader consumed.
func (w *eventWriter) startAfter(afterSeq uint64) {
	if w.last = afterSeq; afterSeq == 0 {
		return
	}
	for i := range w.unknownStart {
		w.unknownStart[i] = true
	}
}

// setInitialState records the state of a process before the first event after startAfter:
// the skipped events may include the exit and the end.
func (w *eventWriter) setInitialState(process *execwirev1.Process) {
	if w.exit == nil && process.GetExit() != nil {
		w.exited(process.GetExit())
	}
	if process.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && process.GetLastSeq() == w.last {
		w.closed = w.exit != nil
	}
}

// write processes one event and returns how many bytes of output it has. Events already
// processed are skipped.
func (w *eventWriter) write(event *execwirev1.ProcessEvent) (int, error) {
	if gap := event.GetGap(); gap != nil {
		return 0, w.skip(event.GetSeq(), gap)
	}
	seq := event.GetSeq()
	if seq <= w.last && seq != 0 {
		return 0, nil
	}
	if seq != w.last+1 {
		return 0, protocolErrorf("seq %d follows seq %d without a gap", seq, w.last)
	}
	if w.closed {
		return 0, protocolErrorf("seq %d follows the closed event", seq)
	}
	n, err := w.apply(event)
	if err != nil {
		return 0, err
	}
	w.last = seq
	return n, nil
}

func (w *eventWriter) apply(event *execwirev1.ProcessEvent) (int, error) {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		return len(e.Output.GetData()), w.output(e.Output)
	case *execwirev1.ProcessEvent_Exited:
		if e.Exited.GetExit() == nil {
			return 0, protocolErrorf("the exited event has no exit record")
		}
		w.exited(e.Exited.GetExit())
	case *execwirev1.ProcessEvent_Closed:
		return 0, w.end(e.Closed)
	}
	return 0, nil
}

// exited records how the process exited.
func (w *eventWriter) exited(exit *execwirev1.ExitRecord) {
	w.exit = exit
	if called := w.onExited; called != nil {
		w.onExited = nil
		called()
	}
}

func (w *eventWriter) output(output *execwirev1.ProcessOutput) error {
	stream := output.GetStream()
	if stream <= 0 || int(stream) >= streamCount {
		return protocolErrorf("output of an unknown stream, number %d", stream)
	}
	if w.unknownStart[stream] {
		w.unknownStart[stream], w.offsets[stream] = false, output.GetOffset()
	}
	offset, expected := output.GetOffset(), w.offsets[stream]
	if offset != expected && (!w.gap[stream] || offset < expected) {
		return protocolErrorf("%s goes on at offset %d instead of %d", streamName(stream), offset, expected)
	}
	if _, err := w.writers[stream].Write(output.GetData()); err != nil {
		return &OutputError{Stream: stream, Err: err}
	}
	w.dropped += offset - expected
	w.offsets[stream] = offset + uint64(len(output.GetData()))
	w.gap[stream] = false
	return nil
}

// skip processes a gap: the events before the one it names are missing.
func (w *eventWriter) skip(seq uint64, gap *execwirev1.OutputGap) error {
	next := gap.GetFirstAvailableSeq()
	if seq != 0 || next <= w.last+1 || w.closed {
		return protocolErrorf("a gap up to seq %d after seq %d", next, w.last)
	}
	w.last = next - 1
	for i := range w.gap {
		w.gap[i] = true
	}
	if w.onGap != nil {
		w.onGap(gap)
	}
	return nil
}

// end processes the closed event, which must agree with the received events.
func (w *eventWriter) end(closed *execwirev1.ProcessClosed) error {
	if w.exit == nil {
		return protocolErrorf("the process closed without an exit record")
	}
	for _, total := range closed.GetTotals() {
		stream := total.GetStream()
		if stream <= 0 || int(stream) >= streamCount {
			continue
		}
		if w.unknownStart[stream] {
			w.offsets[stream] = total.GetBytes()
		}
		if total.GetBytes() != w.offsets[stream] && (!w.gap[stream] || total.GetBytes() < w.offsets[stream]) {
			return protocolErrorf("%d bytes of %s were sent and %d were announced",
				w.offsets[stream], streamName(stream), total.GetBytes())
		}
		w.dropped += total.GetBytes() - w.offsets[stream]
		w.offsets[stream] = total.GetBytes()
	}
	w.closed = true
	return nil
}

// result returns the exit of a closed process.
func (w *eventWriter) result(processID string, resumed int) Exit {
	exit := newExit(w.exit)
	exit.ProcessID, exit.Resumed = processID, resumed
	exit.StdoutBytes = w.offsets[execwirev1.OutputStream_OUTPUT_STREAM_STDOUT]
	exit.StderrBytes = w.offsets[execwirev1.OutputStream_OUTPUT_STREAM_STDERR]
	exit.TerminalBytes = w.offsets[execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL]
	exit.DroppedBytes = w.dropped
	return exit
}
