package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

const (
	// windowBytes is how much of a process may wait in this program for its owner before
	// the link is paused.
	windowBytes = 1 << 20
	// eventCost is what an event counts besides its output.
	eventCost = 256
	// windowEvents is how many events an owner may get beyond those it has acknowledged.
	windowEvents = windowBytes / eventCost
	// batchBytes limits the output in one message of a stream.
	batchBytes = 256 << 10
)

// streamCount is the number of output streams plus one for the unspecified.
const streamCount = int(execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL) + 1

// eventLog keeps the events of a process that its owner has not acknowledged. It numbers
// them itself, without holes:
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

// isFull reports whether a window of events is not acknowledged.
func (l *eventLog) isFull() bool { return l.bytes >= windowBytes }

func (l *eventLog) totals() (totals []*execwirev1.StreamTotal) {
	for stream, bytes := range l.offsets {
		if bytes > 0 {
			totals = append(totals, &execwirev1.StreamTotal{Stream: execwirev1.OutputStream(stream), Bytes: bytes})
		}
	}
	return totals
}

// evict drops the events up to a number, which were acknowledged.
func (l *eventLog) evict(to uint64) {
	for l.evicted < min(to, l.last) {
		l.bytes -= costOf(l.events[0])
		l.dropped += uint64(len(l.events[0].GetOutput().GetData()))
		l.events[0] = nil
		l.events = l.events[1:]
		l.evicted++
	}
}

// discard drops all events but the close, which answers later owners.
func (l *eventLog) discard() {
	if l.closed {
		l.evict(l.last - 1)
	} else {
		l.evict(l.last)
	}
}

// isEnd reports whether a number is that of the close.
func (l *eventLog) isEnd(number uint64) bool { return l.closed && number == l.last }

// next returns the next events after a number, and moves that. Those that an earlier
// owner acknowledged are replaced by a gap, except the exit.
func (l *eventLog) next(after *uint64) (batch []*execwirev1.ProcessEvent) {
	if *after < l.evicted {
		end := l.evicted
		hasExit := *after < l.exitAt && l.exitAt <= l.evicted
		if hasExit {
			end--
		}
		if *after < end {
			batch = append(batch, gapEvent(end+1, l.dropped))
		}
		if hasExit {
			exited := exitedEvent(l.exit)
			exited.Seq = l.evicted
			batch = append(batch, exited)
		}
		*after = l.evicted
	}
	for cost := 0; *after < l.last && cost < batchBytes; *after++ {
		event := l.events[*after-l.evicted]
		batch = append(batch, event)
		cost += costOf(event)
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
