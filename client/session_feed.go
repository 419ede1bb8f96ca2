package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// maxCursors limits the cursors of one attach request. Events of further processes may
// be sent again, and are skipped.
const maxCursors = 10_000

// sessionFeed has the received events of a Session, what was consumed, and the
// acknowledgements to send. All methods may be called concurrently.
type sessionFeed struct {
	ready notify.Signal // wakes a reader

	mu        sync.Mutex
	processes map[string]*sessionPosition // guarded by mu
	queue     []SessionEvents             // guarded by mu; received and not returned
	queued    int                         // guarded by mu; the size of queue
	err       error                       // guarded by mu; why no more follows
	acks      *acknowledger
}

// sessionPosition is the position in one process.
type sessionPosition struct {
	received uint64 // last received seq; 0 is none
	taken    uint64
	started  bool // an event was received, or is known to have been
	closed   bool // the closed event was received
	// repeated is the last seq that the current stream sends again, because it was not
	// consumed when the stream began; 0 is none.
	repeated uint64
	batches  []sessionBatch
}

// sessionBatch is one received message that was not consumed.
type sessionBatch struct {
	last          uint64
	bytes, events int
}

func newSessionFeed(afterSeq map[string]uint64) *sessionFeed {
	f := &sessionFeed{ready: notify.NewSignal(), processes: map[string]*sessionPosition{}, acks: newAcknowledger()}
	for id, seq := range afterSeq {
		f.processes[id] = &sessionPosition{received: seq, taken: seq, started: true}
	}
	return f
}

// add appends events of a process. Events already received are skipped; an undeclared
// hole is an error, and so is more than the window.
func (f *sessionFeed) add(id string, events []*execwirev1.ProcessEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.position(id, events)
	var batch sessionBatch
	fresh := make([]*execwirev1.ProcessEvent, 0, len(events))
	for _, event := range events {
		known, err := p.advance(event)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		if event.GetGap() != nil && len(p.batches) > 0 {
			event = inexact(event)
		}
		fresh = append(fresh, event)
		batch.bytes += len(event.GetOutput().GetData())
		batch.events++
	}
	if len(fresh) == 0 {
		return nil
	}
	batch.last = p.received
	p.batches = append(p.batches, batch)
	if err := f.acks.received(id, batch.bytes, batch.events); err != nil {
		return err
	}
	return f.push(SessionEvents{ProcessID: id, Events: fresh})
}

// push queues events. It fails if those of all processes exceed the limit. mu is held.
func (f *sessionFeed) push(events SessionEvents) error {
	f.queue = append(f.queue, events)
	f.queued += events.size()
	f.ready.Set()
	if f.queued > maxWindowBytes {
		return &WindowError{ProcessID: events.ProcessID, LimitBytes: maxWindowBytes}
	}
	return nil
}

// size returns the memory of the events.
func (e SessionEvents) size() int {
	size := eventBytes
	for _, event := range e.Events {
		size += eventBytes + len(event.GetOutput().GetData())
	}
	return size
}

// inexact returns a gap that was counted from the cursor but begins after the received
// events.
func inexact(gap *execwirev1.ProcessEvent) *execwirev1.ProcessEvent {
	gap = proto.CloneOf(gap) // the server may share the message
	gap.GetGap().UpperBound = true
	return gap
}

// position returns the position of the process, or a new one if its id was reused: it
// starts over when nothing of the previous process will be repeated. mu is held.
func (f *sessionFeed) position(id string, events []*execwirev1.ProcessEvent) *sessionPosition {
	p := f.processes[id]
	if p == nil || p.closed && p.repeated == 0 && len(p.batches) == 0 && len(events) > 0 && events[0].GetSeq() == 1 {
		p = &sessionPosition{}
		f.processes[id] = p
		f.acks.forget(id)
	}
	return p
}

// advance moves the position over an event and reports whether it was received before.
func (p *sessionPosition) advance(event *execwirev1.ProcessEvent) (known bool, err error) {
	if gap := event.GetGap(); gap != nil {
		next := gap.GetFirstAvailableSeq()
		if next <= p.received+1 {
			return true, nil
		}
		p.received, p.started = next-1, true
		return false, nil
	}
	seq := event.GetSeq()
	switch {
	case p.started && seq <= p.received:
		if seq >= p.repeated {
			p.repeated = 0
		}
		return true, nil
	case p.closed:
		return false, protocolErrorf("seq %d follows the closed event", seq)
	case seq == 0 || p.started && seq != p.received+1:
		return false, protocolErrorf("seq %d follows seq %d without a gap", seq, p.received)
	}
	if !p.started { // earlier events were consumed by another client
		p.taken = seq - 1
	}
	p.received, p.started, p.closed = seq, true, event.GetClosed() != nil
	return false, nil
}

// release forgets the position of a process that another client advances.
func (f *sessionFeed) release(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.processes, id)
	f.acks.forget(id)
	return f.push(SessionEvents{ProcessID: id, Released: true})
}

// end records why no more follows.
func (f *sessionFeed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.ready.Set()
}

// next returns the oldest received events.
func (f *sessionFeed) next(ctx context.Context) (SessionEvents, error) {
	for {
		if events, ok, err := f.take(); ok || err != nil {
			f.ready.Set() // for another reader
			return events, err
		}
		if err := notify.Wait(ctx, f.ready.C()); err != nil {
			return SessionEvents{}, err
		}
	}
}

func (f *sessionFeed) take() (SessionEvents, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return SessionEvents{}, false, f.err
	}
	first := f.queue[0]
	f.queue[0] = SessionEvents{}
	f.queue = f.queue[1:]
	f.queued -= first.size()
	return first, true, nil
}

// taken records that events up to seq were consumed, and schedules the acknowledgement.
func (f *sessionFeed) taken(id string, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.processes[id]
	if p == nil || seq <= p.taken || seq > p.received {
		return
	}
	p.taken = seq
	bytes, events := 0, 0
	for len(p.batches) > 0 && p.batches[0].last <= seq {
		bytes, events = bytes+p.batches[0].bytes, events+p.batches[0].events
		p.batches = p.batches[1:]
	}
	final := p.closed && seq == p.received
	if final {
		time.AfterFunc(startRetryTimeout, func() { f.forget(id, p) })
	}
	f.acks.taken(id, seq, bytes, events, final)
}

// forget removes a process that was consumed so long ago that the server has certainly
// received the acknowledgement; later it may reuse the id.
func (f *sessionFeed) forget(id string, p *sessionPosition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.processes[id] == p {
		delete(f.processes, id)
		f.acks.forget(id)
	}
}

// attachCursors returns the cursors for a new stream, which repeats received but
// unconsumed events.
func (f *sessionFeed) attachCursors() map[string]uint64 {
	cursors := f.cursors()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, p := range f.processes {
		p.repeated = 0
		if cursor, ok := cursors[id]; ok && cursor < p.received {
			p.repeated = p.received
		}
	}
	return cursors
}

// cursors returns the last consumed event of each process, including 0: a process with
// received events continues there, even if another client acknowledged more in the
// meantime.
func (f *sessionFeed) cursors() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	cursors := make(map[string]uint64, min(len(f.processes), maxCursors))
	for id, p := range f.processes {
		if p.started && len(cursors) < maxCursors {
			cursors[id] = p.taken
		}
	}
	return cursors
}

// endedWith returns how a Session ended; nil if its caller ended it.
func (f *sessionFeed) endedWith() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.err, io.EOF) {
		return nil
	}
	return f.err
}
