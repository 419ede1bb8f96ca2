package execserver

import (
	"context"
	"io"
	"slices"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// DefaultQueueBytes is how much of a process may wait in this program for each
	// of its readers.
	DefaultQueueBytes = 1 << 20
	// eventCost is what an event counts beside its output.
	eventCost = 256
	// catchUpBytes is how much of what a reader missed is asked for at once: less
	// than a connection carries that is lost again and again.
	catchUpBytes = 128 << 10
	// batchBytes is how much output leaves in one message of a stream.
	batchBytes = 256 << 10
	// holePatience is how long an event may come later than one that follows it,
	// from servers of the reference, before it is read.
	holePatience = time.Second
)

// feed is what one reader gets of a process: events in order, from notifications as
// long as it keeps up, and else from process/read. It belongs to one link.
type feed struct {
	process *process
	link    *link
	// paces is whether the process waits for the reader, as far as the server can
	// have it wait.
	paces bool
	wake  chan struct{} // has a token when there is something for the reader
	room  chan struct{} // has a token when the reader has taken something

	// Guarded by process.mu.
	queue   []*execwirev1.ProcessEvent
	bytes   int
	lagging bool  // what came was dropped: it has to be read
	over    error // why the reader gets no more

	// Of the reader.
	reading  bool // something has to be read, and not taken from the queue
	first    bool // nothing was read yet
	cursor   uint64
	owed     uint64 // a seq that the server has named, and that reading has to reach
	offsets  [streamCount]uint64
	exitSeen bool
}

// join adds a reader that has everything up to a seq, which need not be known here.
func (p *process) join(l *link, after uint64, reading, paces bool) *feed {
	f := &feed{process: p, link: l, paces: paces, reading: reading, first: true, cursor: after,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.offsets = p.offsetsAt(after)
	p.feeds = append(p.feeds, f)
	if paces {
		p.conn.pacing.Add(1)
		notify(p.conn.busy)
	}
	return f
}

// leave ends a feed.
func (f *feed) leave() {
	p := f.process
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.feeds)
	p.feeds = slices.DeleteFunc(p.feeds, func(other *feed) bool { return other == f })
	if f.paces && len(p.feeds) < before {
		p.conn.pacing.Add(-1)
	}
	f.queue, f.bytes = nil, 0
	notify(f.room)
}

// notify wakes whoever waits on c, which has room for one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func costOf(event *execwirev1.ProcessEvent) int { return len(event.GetOutput().GetData()) + eventCost }

// push adds an event. process.mu is held.
func (f *feed) push(event *execwirev1.ProcessEvent) error {
	limit := f.process.conn.options.QueueBytes
	owed := f.paces && f.link.peer.acknowledges // the server waits for the reader
	if owed {
		limit, owed = f.link.peer.mostUnacknowledged()
	}
	switch {
	case f.lagging:
		return nil
	case f.bytes < limit:
		f.enqueue(event)
	case owed:
		return protocolErrorf("process %.100q said more than the window of what is acknowledged", f.process.id)
	default:
		f.queue, f.bytes, f.lagging = nil, 0, true
	}
	notify(f.wake)
	return nil
}

// enqueue puts an event where its seq belongs: the reference sends those of two streams
// in any order. process.mu is held.
func (f *feed) enqueue(event *execwirev1.ProcessEvent) {
	at := len(f.queue)
	for at > 0 && !f.link.peer.execwire && f.queue[at-1].GetSeq() > event.GetSeq() {
		at--
	}
	f.queue = slices.Insert(f.queue, at, event)
	f.bytes += costOf(event)
}

// maxWindowQueue is how much of a process waits at most for a reader that its server
// waits for, however large a window the server says that it has. What is beyond it is
// read when the reader comes to it.
const maxWindowQueue = 256 << 20

// mostUnacknowledged is how much of a process may wait for a reader, and whether more
// than that breaks the server's word.
func (p *peer) mostUnacknowledged() (limit int, isPromise bool) {
	if p.windowBytes >= maxWindowQueue/2 || p.windowEvents >= maxWindowQueue/2/eventCost {
		return maxWindowQueue, false
	}
	wanted := 2 * (p.windowBytes + eventCost*p.windowEvents)
	return int(min(wanted, maxWindowQueue)), wanted <= maxWindowQueue
}

// isFull reports whether the next event would be dropped.
func (f *feed) isFull() bool {
	f.process.mu.Lock()
	defer f.process.mu.Unlock()
	return f.bytes >= f.process.conn.options.QueueBytes && !f.lagging && f.over == nil
}

// next blocks until there are events for the reader. io.EOF says that it had the
// close before.
func (f *feed) next(ctx context.Context) ([]*execwirev1.ProcessEvent, error) {
	var late *time.Timer // runs while there is a hole
	for {
		if f.reading {
			events, err := f.catchUp(ctx)
			if err != nil || len(events) > 0 {
				return events, err
			}
			continue
		}
		events, hole, err := f.take()
		switch {
		case err != nil:
			return nil, err
		case f.reading:
			continue
		case len(events) > 0:
			events, err = f.inOrder(events)
			if err != nil || len(events) > 0 {
				return events, err
			}
			continue
		}
		var isLate <-chan time.Time
		if hole != 0 {
			if late == nil {
				late = time.NewTimer(holePatience)
				defer late.Stop()
			}
			isLate = late.C
		}
		select {
		case <-f.wake:
		case <-isLate:
			f.reading, f.owed = true, hole
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		case <-f.link.lost():
			return nil, f.link.status()
		}
	}
}

// take takes what is queued, up to a batch and to a hole, and begins to read if there
// is nothing else for it. hole is the seq behind the hole that the queue begins with, 0
// if it does not.
func (f *feed) take() (events []*execwirev1.ProcessEvent, hole uint64, err error) {
	p := f.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.over != nil {
		return nil, 0, f.over
	}
	if f.lagging {
		f.lagging = false // what comes from now on is beyond what will be read
		f.reading = true
		return nil, 0, nil
	}
	n, bytes := 0, 0
	for last := f.cursor; n < len(f.queue) && bytes < batchBytes; n++ {
		seq := f.queue[n].GetSeq()
		if seq > last+1 && !f.link.peer.execwire {
			hole = seq
			break
		}
		last = max(last, seq)
		bytes += costOf(f.queue[n])
	}
	if n == 0 && hole != 0 && f.bytes >= p.conn.options.QueueBytes {
		f.reading, f.owed = true, hole // there is no room to wait in
		return nil, 0, nil
	}
	events = f.queue[:n:n]
	if f.queue = f.queue[n:]; len(f.queue) == 0 {
		f.queue = nil
	}
	f.bytes -= bytes
	notify(f.room)
	return events, hole, nil
}

// catchUp reads what follows the cursor.
func (f *feed) catchUp(ctx context.Context) ([]*execwirev1.ProcessEvent, error) {
	first := f.first
	f.first = false
	r, err := f.process.read(ctx, f.link, f.cursor, catchUpBytes, f.exitSeen)
	if err != nil {
		return nil, err
	}
	if first && r.last < f.cursor {
		return nil, seqNotReached(f.process.id, f.cursor, r.last)
	}
	f.reading = !r.complete
	events, err := f.inOrder(r.events)
	if err == nil && r.complete && f.cursor < f.owed {
		err = f.process.conn.broken(f.link, protocolErrorf(
			"process %.100q has said seq %d, and has nothing after %d when it is read", f.process.id, f.owed, f.cursor))
	}
	if err == nil && r.complete && r.closed && len(events) == 0 {
		err = io.EOF
	}
	return events, err
}

func seqNotReached(id string, seq, last uint64) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED,
		"seq %d of process %s is not reached: its last event is %d", seq, id, last)
}

// inOrder returns what follows the cursor, with offsets, and moves it. After a hole
// it reads.
func (f *feed) inOrder(events []*execwirev1.ProcessEvent) ([]*execwirev1.ProcessEvent, error) {
	ready := make([]*execwirev1.ProcessEvent, 0, len(events))
	for _, event := range events {
		seq := event.GetSeq()
		if gap := event.GetGap(); gap != nil {
			if gap.GetFirstAvailableSeq() > f.cursor+1 {
				f.cursor = gap.GetFirstAvailableSeq() - 1
				ready = append(ready, event)
			}
			continue
		}
		switch {
		case seq <= f.cursor:
			continue
		case seq > f.cursor+1 && f.link.peer.execwire:
			return nil, f.process.conn.broken(f.link, protocolErrorf(
				"process %.100q goes on with seq %d after %d without a gap", f.process.id, seq, f.cursor))
		case seq > f.cursor+1:
			f.reading, f.owed = true, seq // the server sends events of a process in any order
			return ready, nil
		}
		f.cursor = seq
		ready = append(ready, f.placed(event))
	}
	return ready, nil
}

// placed fills in what a server does not tell: the offset of output, and the totals
// at the end.
func (f *feed) placed(event *execwirev1.ProcessEvent) *execwirev1.ProcessEvent {
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		stream, at := e.Output.GetStream(), e.Output.GetOffset()
		if at == unknownOffset {
			at = f.offsets[stream]
			event = outputEvent(event.GetSeq(), stream, e.Output.GetData(), &at) // others have the same event
		}
		f.offsets[stream] = at + uint64(len(e.Output.GetData()))
		if f.paces {
			f.process.mark(event.GetSeq(), stream, f.offsets[stream])
		}
	case *execwirev1.ProcessEvent_Exited:
		f.exitSeen = true
	case *execwirev1.ProcessEvent_Closed:
		if e.Closed.GetTotals() == nil {
			event = closedEvent(event.GetSeq(), f.totals())
		}
	}
	return event
}

func (f *feed) totals() []*execwirev1.StreamTotal {
	of := []execwirev1.OutputStream{execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, execwirev1.OutputStream_OUTPUT_STREAM_STDERR}
	if f.process.hasTerminal {
		of = []execwirev1.OutputStream{execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL}
	}
	totals := make([]*execwirev1.StreamTotal, 0, len(of))
	for _, stream := range of {
		totals = append(totals, &execwirev1.StreamTotal{Stream: stream, Bytes: f.offsets[stream]})
	}
	return totals
}
