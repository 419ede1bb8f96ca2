package client

import (
	"context"
	"iter"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Event is one thing that a process did, in the order in which it did: an
// [*OutputEvent], [*GapEvent], [*ExitedEvent], [*ClosedEvent] or [*FailedEvent], or an
// [*UnknownEvent] of a newer server, to be passed over.
type Event interface {
	// After is the seq up to which everything has been told with this event: what
	// to go on behind.
	After() uint64
	isEvent()
}

// OutputEvent says that the process wrote.
type OutputEvent struct {
	// Seq is the event's number in its process.
	Seq uint64
	// Stream is where the bytes came from.
	Stream execwirev1.OutputStream
	// Offset is how many bytes of the stream came before these.
	Offset uint64
	// Data are the bytes, which must not be changed. Where they are cut means
	// nothing.
	Data []byte
}

// GapEvent says that output is missing here: it is not kept any more.
type GapEvent struct {
	// FirstAvailableSeq is the seq of the event that follows.
	FirstAvailableSeq uint64
	// DroppedBytes is how much is missing, over all streams; at most, if
	// UpperBound.
	DroppedBytes uint64
	// UpperBound is whether it may be less.
	UpperBound bool
}

// ExitedEvent says that the process exited. Descendants that hold its streams may
// still write after it.
type ExitedEvent struct {
	// Seq is the event's number in its process.
	Seq uint64
	// Exit is how it ended, without the bytes of its output.
	Exit Exit
}

// ClosedEvent says that the process has exited and all of its output was told. It
// is the last.
type ClosedEvent struct {
	// Seq is the event's number in its process.
	Seq uint64
}

// FailedEvent says that the process cannot be followed any more; what becomes of it
// is not known. It is the last in the place of a ClosedEvent.
type FailedEvent struct {
	// Err is why: an error as Process.Wait returns it.
	Err error

	after uint64
}

// UnknownEvent is an event of a kind that is newer than this package.
type UnknownEvent struct {
	// Seq is the event's number in its process.
	Seq uint64
}

// After implements Event.
func (e *OutputEvent) After() uint64 { return e.Seq }

// After implements Event.
func (e *GapEvent) After() uint64 { return e.FirstAvailableSeq - 1 }

// After implements Event.
func (e *ExitedEvent) After() uint64 { return e.Seq }

// After implements Event.
func (e *ClosedEvent) After() uint64 { return e.Seq }

// After implements Event.
func (e *FailedEvent) After() uint64 { return e.after }

// After implements Event.
func (e *UnknownEvent) After() uint64 { return e.Seq }

func (*OutputEvent) isEvent()  {}
func (*UnknownEvent) isEvent() {}
func (*GapEvent) isEvent()     {}
func (*ExitedEvent) isEvent()  {}
func (*ClosedEvent) isEvent()  {}
func (*FailedEvent) isEvent()  {}

// Events ranges over what the process does, from its first event on, until it has
// closed; one that was attached to begins behind ProcessRef.AfterSeq. What is not
// kept any more, see StartOptions.KeepBytes, is a [*GapEvent] in its place. When
// the process cannot be followed any more, the last is a [*FailedEvent] together
// with its error; when ctx is done, nil together with its cause.
//
// Any number may range over the events of a process, each at its own time. An event
// is taken when the next is asked for, or the loop is left; the process waits for
// the slowest.
func (p *Process) Events(ctx context.Context) iter.Seq2[Event, error] {
	return p.EventsAfter(ctx, 0)
}

// EventsAfter is Events from behind the event with this seq, as [Event.After] has
// it, to go on where another loop was left.
func (p *Process) EventsAfter(ctx context.Context, seq uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		reader := p.feed.enter(seq)
		defer p.feed.leave(reader)
		for {
			event, err := p.feed.next(ctx, reader)
			if event == nil && err == nil || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

func newEvent(e *execwirev1.ProcessEvent) Event {
	switch kind := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		return &OutputEvent{
			Seq: e.GetSeq(), Stream: kind.Output.GetStream(), Offset: kind.Output.GetOffset(), Data: kind.Output.GetData()}
	case *execwirev1.ProcessEvent_Exited:
		return &ExitedEvent{Seq: e.GetSeq(), Exit: newExit(kind.Exited.GetExit())}
	case *execwirev1.ProcessEvent_Closed:
		return &ClosedEvent{Seq: e.GetSeq()}
	case *execwirev1.ProcessEvent_Gap:
		return &GapEvent{
			FirstAvailableSeq: kind.Gap.GetFirstAvailableSeq(), DroppedBytes: kind.Gap.GetDroppedBytes(), UpperBound: kind.Gap.GetUpperBound()}
	}
	return &UnknownEvent{Seq: e.GetSeq()}
}
