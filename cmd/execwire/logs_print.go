package main

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// eventObject is an event as --json prints it.
type eventObject struct {
	Seq   uint64 `json:"seq,omitempty"`
	Event string `json:"event"`

	Stream string  `json:"stream,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	Data   []byte  `json:"data,omitempty"`
	Text   *string `json:"text,omitempty"`

	Exit *exitObject `json:"exit,omitempty"`

	FirstAvailableSeq uint64 `json:"first_available_seq,omitempty"`
	DroppedBytes      uint64 `json:"dropped_bytes,omitempty"`
	UpperBound        bool   `json:"upper_bound,omitempty"`
}

// logPrinter prints events of a process.
type logPrinter struct {
	flags logsFlags
	std   streams
}

// wants reports whether the event is to be printed.
func (p *logPrinter) wants(e *execwirev1.ProcessEvent) bool {
	output := e.GetOutput()
	if output == nil {
		return p.flags.json || e.GetGap() != nil
	}
	fromStderr := output.GetStream() == execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	return !(p.flags.stdout && fromStderr || p.flags.stderr && !fromStderr)
}

func (p *logPrinter) print(e *execwirev1.ProcessEvent) error {
	if p.flags.json {
		return p.printObject(e)
	}
	if gap := e.GetGap(); gap != nil {
		fmt.Fprintf(p.std.err, "execwire: %s bytes of output are missing here: they are not kept any more\n", droppedWords(gap))
		return nil
	}
	out := p.std.out
	if e.GetOutput().GetStream() == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
		out = p.std.err
	}
	_, err := out.Write(e.GetOutput().GetData())
	return err
}

func droppedWords(gap *execwirev1.OutputGap) string {
	if gap.GetUpperBound() {
		return fmt.Sprintf("up to %d", gap.GetDroppedBytes())
	}
	return fmt.Sprint(gap.GetDroppedBytes())
}

func (p *logPrinter) printObject(e *execwirev1.ProcessEvent) error {
	object := eventObject{Seq: e.GetSeq()}
	switch event := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		object.Event, object.Stream = "output", enumWord(event.Output.GetStream(), "OUTPUT_STREAM_")
		object.Offset, object.Data = &event.Output.Offset, event.Output.GetData()
		if utf8.Valid(object.Data) {
			object.Text = new(string(object.Data))
		}
	case *execwirev1.ProcessEvent_Exited:
		object.Event, object.Exit = "exited", describeExit(event.Exited.GetExit())
	case *execwirev1.ProcessEvent_Closed:
		object.Event = "closed"
	case *execwirev1.ProcessEvent_Gap:
		object.Event = "gap"
		object.FirstAvailableSeq, object.DroppedBytes = event.Gap.GetFirstAvailableSeq(), event.Gap.GetDroppedBytes()
		object.UpperBound = event.Gap.GetUpperBound()
	default:
		return nil // of a newer server
	}
	return printJSON(p.std.out, object)
}

// logTail keeps the last bytes of what is added.
type logTail struct {
	limit  int
	events []*execwirev1.ProcessEvent
	bytes  int
}

func (t *logTail) add(e *execwirev1.ProcessEvent) {
	t.events = append(t.events, e)
	t.bytes += len(e.GetOutput().GetData())
	for t.bytes > t.limit {
		first := t.events[0].GetOutput()
		excess := t.bytes - t.limit
		if len(first.GetData()) > excess {
			cut := proto.CloneOf(t.events[0])
			cut.GetOutput().Offset += uint64(excess)
			cut.GetOutput().Data = first.GetData()[excess:]
			t.events[0] = cut
			t.bytes -= excess
			return
		}
		t.bytes -= len(first.GetData())
		t.events = t.events[1:]
	}
}

func (t *logTail) print(p *logPrinter) error {
	for _, e := range t.events {
		if err := p.print(e); err != nil {
			return err
		}
	}
	return nil
}
