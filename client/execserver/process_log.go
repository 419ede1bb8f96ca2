package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

const (
	// windowBytes is how much of a process may wait in this program for its owner before
	// the link is paused.
	windowBytes = 1 << 20
	// retainedBytes is how much of a process is kept, if the link cannot be paused.
	retainedBytes = 2 * windowBytes
	// eventCost is what an event counts besides its output.
	eventCost = 256
	// batchBytes limits the output in one message of a stream.
	batchBytes = 256 << 10
)

// streamCount is the number of output streams plus one for the unspecified.
const streamCount = int(execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL) + 1

// eventLog keeps the last events of a process. It numbers them itself, without holes:
// servers do not report the seq of every event. A gap, which has no seq, takes a number
// like any other event.
type eventLog struct {
	events  []*execwirev1.ProcessEvent // those after evicted
	bytes   int                        // the cost of events
	last    uint64                     // the number of the last event
	evicted uint64                     // the number of the last evicted event
	dropped uint64                     // the bytes of output that were evicted
	offsets [streamCount]uint64        // of the next output

	exit   *execwirev1.ExitRecord // nil before the exited event
	exitAt uint64                 // the number of that
	closed bool
}

func costOf(event *execwirev1.ProcessEvent) int { return len(event.GetOutput().GetData()) + eventCost }

// append adds an event, which the log owns from then on. It evicts nothing.
func (l *eventLog) append(event *execwirev1.ProcessEvent) {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		e.Output.Offset = l.offsets[e.Output.GetStream()]
		l.offsets[e.Output.GetStream()] += uint64(len(e.Output.GetData()))
	case *execwirev1.ProcessEvent_Exited:
		if l.exit != nil {
			return
		}
		l.exit, l.exitAt = e.Exited.GetExit(), l.last+1
	case *execwirev1.ProcessEvent_Closed:
		if l.closed {
			return
		}
		l.closed, e.Closed.Totals = true, l.totals()
	}
	l.last++
	if event.GetGap() != nil {
		event.GetGap().FirstAvailableSeq = l.last + 1
	} else {
		event.Seq = l.last
	}
	l.events = append(l.events, event)
	l.bytes += costOf(event)
}

// limit evicts the oldest events beyond retainedBytes.
func (l *eventLog) limit() {
	for l.bytes > retainedBytes && len(l.events) > 1 {
		l.evict(l.evicted + 1)
	}
}

func (l *eventLog) totals() (totals []*execwirev1.StreamTotal) {
	for stream, bytes := range l.offsets {
		if bytes > 0 {
			totals = append(totals, &execwirev1.StreamTotal{Stream: execwirev1.OutputStream(stream), Bytes: bytes})
		}
	}
	return totals
}

// evict drops the events up to a number.
func (l *eventLog) evict(to uint64) {
	for l.evicted < min(to, l.last) {
		l.bytes -= costOf(l.events[0])
		l.dropped += uint64(len(l.events[0].GetOutput().GetData()))
		l.events[0] = nil
		l.events = l.events[1:]
		l.evicted++
	}
}

// cursor is the position of a reader of a log.
type cursor struct {
	after uint64 // the number of the last event read
	bytes uint64 // of output up to there; 0 if that is not known
}

// cursorAfter returns a cursor for the events after a number.
func (l *eventLog) cursorAfter(number uint64) cursor {
	if number < l.evicted {
		return cursor{after: number}
	}
	c := cursor{number, l.dropped}
	for _, event := range l.events[:number-l.evicted] {
		c.bytes += uint64(len(event.GetOutput().GetData()))
	}
	return c
}

// isEnd reports whether the cursor is after the close.
func (l *eventLog) isEnd(c cursor) bool { return l.closed && c.after == l.last }

// next returns the next events, with a gap in place of evicted ones, and moves the
// cursor. The exit is never lost.
func (l *eventLog) next(c *cursor) (batch []*execwirev1.ProcessEvent) {
	if c.after < l.evicted {
		end := l.evicted
		hasExit := c.after < l.exitAt && l.exitAt <= l.evicted
		if hasExit {
			end--
		}
		if c.after < end {
			batch = append(batch, gapEvent(end+1, l.dropped-c.bytes))
		}
		if hasExit {
			exited := exitedEvent(l.exit)
			exited.Seq = l.evicted
			batch = append(batch, exited)
		}
		*c = cursor{after: l.evicted, bytes: l.dropped}
	}
	for cost := 0; c.after < l.last && cost < batchBytes; c.after++ {
		event := l.events[c.after-l.evicted]
		batch = append(batch, event)
		cost += costOf(event)
		c.bytes += uint64(len(event.GetOutput().GetData()))
	}
	return batch
}

func outputEvent(stream execwirev1.OutputStream, data []byte) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Output{
		Output: &execwirev1.ProcessOutput{Stream: stream, Data: data}}}
}

func exitedEvent(exit *execwirev1.ExitRecord) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Exited{Exited: &execwirev1.ProcessExited{Exit: exit}}}
}

func closedEvent() *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
}

func gapEvent(firstAvailable, droppedBytes uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{
		FirstAvailableSeq: firstAvailable, DroppedBytes: droppedBytes, UpperBound: true}}}
}
