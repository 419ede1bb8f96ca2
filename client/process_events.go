package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Event is an event of a process, in order: an [*OutputEvent], [*GapEvent],
// [*ExitedEvent], [*ClosedEvent] or [*FailedEvent], or an [*UnknownEvent] of a newer
// server, to be skipped.
type Event interface {
	// After returns the seq after which to continue behind this event.
	After() uint64
	isEvent()
}

// OutputEvent is output of the process.
type OutputEvent struct {
	// Seq is the sequence number of the event.
	Seq uint64
	// Stream is the stream of the output.
	Stream execwirev1.OutputStream
	// Offset is how many bytes of the stream precede Data.
	Offset uint64
	// Data is the output and must not be modified. Boundaries between events have no
	// meaning.
	Data []byte
	// ReadTime is when the server read Data from the process, by its clock; it never
	// decreases. Zero: the server has no times.
	ReadTime time.Time
}

// GapEvent reports missing output: it was evicted.
type GapEvent struct {
	// FirstAvailableSeq is the seq of the next event.
	FirstAvailableSeq uint64
	// DroppedBytes is how many bytes are missing, over all streams; an upper bound if
	// UpperBound is set.
	DroppedBytes uint64
	// UpperBound is whether DroppedBytes is an upper bound.
	UpperBound bool
}

// ExitedEvent reports that the process exited. Descendants with its streams open may
// still write.
type ExitedEvent struct {
	// Seq is the sequence number of the event.
	Seq uint64
	// Exit is how it ended, without byte counts.
	Exit Exit
}

// ClosedEvent reports that the process has exited and all output was delivered. It is
// the last event.
type ClosedEvent struct {
	// Seq is the sequence number of the event.
	Seq uint64
}

// FailedEvent reports that the process can no longer be followed; its further state is
// unknown. It is the last event, instead of a ClosedEvent.
type FailedEvent struct {
	// Err is the cause: an error as returned by Process.Wait.
	Err error

	after uint64
}

// UnknownEvent is an event of a kind that this package does not know.
type UnknownEvent struct {
	// Seq is the sequence number of the event.
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

// Events ranges over the events of the process, from the first, or after
// ProcessRef.AfterSeq if it was attached to, until it has closed. Events that are no
// longer kept, see StartOptions.KeepBytes, are replaced by a [*GapEvent]. If the
// process can no longer be followed, the last item is a [*FailedEvent] with its error;
// if ctx is done, nil with its cause.
//
// Any number of readers may range over the events, each at its own pace. An event is
// consumed when the next one is requested or the loop ends; the process waits for the
// slowest reader.
func (p *Process) Events(ctx context.Context) iter.Seq2[Event, error] {
	return p.EventsAfter(ctx, 0)
}

// EventsAfter is Events from after the event with this seq, see [Event.After], to
// continue where another loop ended.
func (p *Process) EventsAfter(ctx context.Context, seq uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		reader := p.feed.addReader(seq)
		defer p.feed.removeReader(reader)
		for {
			event, err := p.feed.next(ctx, reader)
			if event == nil && err == nil || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Output ranges over the output of all streams as Events does over events. It ends with an
// error if the process can no longer be followed, ctx is done, or output is missing: range
// over Events to continue behind a [*GapEvent].
func (p *Process) Output(ctx context.Context) iter.Seq2[*OutputEvent, error] {
	return func(yield func(*OutputEvent, error) bool) {
		for event, err := range p.Events(ctx) {
			output, isOutput := event.(*OutputEvent)
			switch e := event.(type) {
			case *GapEvent:
				err = fmt.Errorf("%d bytes of output, or fewer, were evicted", e.DroppedBytes)
			case *FailedEvent:
				err = e.Err
			}
			if (isOutput || err != nil) && !yield(output, err) || err != nil {
				return
			}
		}
	}
}

func newEvent(e *execwirev1.ProcessEvent) Event {
	switch kind := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		event := &OutputEvent{
			Seq: e.GetSeq(), Stream: kind.Output.GetStream(), Offset: kind.Output.GetOffset(), Data: kind.Output.GetData()}
		if at := kind.Output.GetReadTime(); at != nil {
			event.ReadTime = at.AsTime()
		}
		return event
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

// ReadOptions select what to read. The zero value reads one page from the beginning and
// does not wait.
type ReadOptions struct {
	// AfterSeq is the seq of the last event that the caller has read.
	AfterSeq uint64
	// MaxBytes limits the output to return, in whole events, at least one; 0 or more
	// than 1 MiB is 1 MiB.
	MaxBytes int
	// Wait is how long to wait for an event if there is none; 0 does not wait, a
	// negative value waits without limit.
	Wait time.Duration
}

// Page is what [Process.Read] returns.
type Page struct {
	// Events are the next events; evicted output is a [*GapEvent]. Empty if Wait
	// expired first.
	Events []Event
	// AfterSeq is the cursor for the next call.
	AfterSeq uint64
	// Closed is whether there is nothing more to read.
	Closed bool
}

// maxPageBytes limits the output of a Page.
const maxPageBytes = 1 << 20

// Read returns events after a cursor, for programs that poll instead of ranging over
// [Process.Events]. It reads received events without a call to the server, also after
// the process has ended. Unless there is a reader of the events, everything up to
// ReadOptions.AfterSeq counts as consumed, and the process can write at most one window
// beyond it.
//
// If the process can no longer be followed and everything was read, the error is that
// of [Process.Wait]; if ctx is done, it wraps its cause.
func (p *Process) Read(ctx context.Context, options ReadOptions) (Page, error) {
	if options.Wait > 0 {
		waiting, cancel := context.WithTimeoutCause(ctx, options.Wait, errWaitExpired)
		defer cancel()
		return p.feed.read(ctx, waiting, options)
	}
	return p.feed.read(ctx, ctx, options)
}

var errWaitExpired = errors.New("the wait is over")

// read waits until waiting is done, which is ctx or ends before it.
func (f *processFeed) read(ctx, waiting context.Context, options ReadOptions) (Page, error) {
	for {
		page, changed, err := f.page(options)
		if changed == nil || options.Wait == 0 {
			return page, err
		}
		select {
		case <-changed:
		case <-waiting.Done():
			if ctx.Err() != nil {
				err = fmt.Errorf("failed to read to the end: %w", context.Cause(ctx))
			}
			return page, err
		}
	}
}

// page returns the available events, and a channel to wait on.
func (f *processFeed) page(options ReadOptions) (Page, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	after := max(options.AfterSeq, f.start)
	if after > f.last {
		return Page{}, nil, fmt.Errorf("failed to read: ReadOptions.AfterSeq is %d and the last event is %d", options.AfterSeq, f.last)
	}
	if len(f.readers) == 0 {
		f.setTaken(after)
	}
	limit := options.MaxBytes
	if limit <= 0 || limit > maxPageBytes {
		limit = maxPageBytes
	}
	page := Page{AfterSeq: after}
	for event := f.eventAfter(after); event != nil; event = f.eventAfter(page.AfterSeq) {
		if output, ok := event.(*OutputEvent); ok {
			if limit -= len(output.Data); limit < 0 && len(page.Events) > 0 {
				break
			}
		}
		page.Events, page.AfterSeq = append(page.Events, event), event.After()
	}
	page.Closed = f.ended && (f.err == nil || f.hasClosed()) && page.AfterSeq == f.last
	switch {
	case len(page.Events) > 0 || page.Closed:
		return page, nil, nil
	case f.ended:
		return page, nil, f.err
	}
	return page, f.changed.Wait(), nil
}
