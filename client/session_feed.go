package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxCursors is the most cursors that one attach may carry. Events of processes
// beyond it may be sent again, and are passed over.
const maxCursors = 10_000

// sessionFeed is what a Session has received, what of it was taken, and what the
// server is to be told of that. All methods may be called concurrently.
type sessionFeed struct {
	// due asks the sender for acknowledgements at once, soon for more after a
	// while, ready wakes a reader; each has room for one token.
	due, soon, ready chan struct{}

	mu        sync.Mutex
	processes map[string]*sessionPosition // guarded by mu
	queue     []SessionEvents             // guarded by mu; received and not returned
	err       error                       // guarded by mu; why nothing more comes
	armed     bool                        // guarded by mu; soon was asked for and not yet served

	byteLimit, eventLimit int                         // guarded by mu; what may be taken before it is due
	dirty                 map[string]*sessionPosition // guarded by mu; taken and not acknowledged
	urgent                []string                    // guarded by mu; those of them that are due
	finished              []string                    // guarded by mu; processes that have closed and were taken, by time
}

// sessionPosition is how far one process has come.
type sessionPosition struct {
	received uint64 // the last seq that was received; 0 is none
	taken    uint64
	started  bool // something was received, or is known to have been
	closed   bool // the closed event was received
	// repeated is the last seq that the stream of now will send again, because it
	// was not taken when the stream began; 0 is none.
	repeated uint64
	batches  []sessionBatch
	// bytes and events were taken since the last acknowledgement.
	bytes, events int
	finishedAt    time.Time // when it was closed and taken; else zero
}

// sessionBatch is what came in one message and was not taken.
type sessionBatch struct {
	last          uint64
	bytes, events int
}

func newSessionFeed(afterSeq map[string]uint64) *sessionFeed {
	f := &sessionFeed{
		due: make(chan struct{}, 1), soon: make(chan struct{}, 1), ready: make(chan struct{}, 1),
		processes: map[string]*sessionPosition{}, dirty: map[string]*sessionPosition{},
	}
	for id, seq := range afterSeq {
		f.processes[id] = &sessionPosition{received: seq, taken: seq, started: true}
	}
	return f
}

// resume begins a stream whose windows are bytes and events. What was taken
// before its attach, the server knows from that; what was since, or did not fit
// in, the sender is asked for anew: whatever the one before it planned is void.
func (f *sessionFeed) resume(bytes, events uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byteLimit, f.eventLimit = int(min(bytes/4, 1<<30)), int(min(events/4, 1<<30))
	drain(f.soon)
	if f.armed = len(f.dirty) > 0; f.armed {
		notify(f.soon)
	}
}

// add takes events of a process. What came before is passed over; a hole that
// is not declared is an error.
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
	f.queue = append(f.queue, SessionEvents{ProcessID: id, Events: fresh})
	notify(f.ready)
	return nil
}

// inexact is a gap that was counted from what was taken, and begins only behind
// what was received.
func inexact(gap *execwirev1.ProcessEvent) *execwirev1.ProcessEvent {
	gap = proto.CloneOf(gap) // it may be the server's own
	gap.GetGap().UpperBound = true
	return gap
}

// position finds the process, or the new one under an id that was free again,
// which begins anew when nothing of the one before is to be repeated. mu is held.
func (f *sessionFeed) position(id string, events []*execwirev1.ProcessEvent) *sessionPosition {
	p := f.processes[id]
	if p == nil || p.closed && p.repeated == 0 && len(p.batches) == 0 && len(events) > 0 && events[0].GetSeq() == 1 {
		p = &sessionPosition{}
		f.processes[id] = p
		delete(f.dirty, id)
	}
	return p
}

// advance moves the position over an event and reports whether it was there
// already.
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
	if !p.started { // what came before is settled, by whomever
		p.taken = seq - 1
	}
	p.received, p.started, p.closed = seq, true, event.GetClosed() != nil
	return false, nil
}

// release forgets where a process is: somebody else moves it on.
func (f *sessionFeed) release(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.processes, id)
	delete(f.dirty, id)
	f.queue = append(f.queue, SessionEvents{ProcessID: id, Released: true})
	notify(f.ready)
}

// end says why nothing more comes.
func (f *sessionFeed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	notify(f.ready)
}

// next returns what was received first.
func (f *sessionFeed) next(ctx context.Context) (SessionEvents, error) {
	for {
		if events, ok, err := f.take(); ok || err != nil {
			notify(f.ready) // for another reader
			return events, err
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
			return SessionEvents{}, context.Cause(ctx)
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
	return first, true, nil
}

// taken notes that events up to seq were taken, and has it acknowledged in time.
func (f *sessionFeed) taken(id string, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.processes[id]
	if p == nil || seq <= p.taken || seq > p.received {
		return
	}
	p.taken = seq
	f.dirty[id] = p
	for len(p.batches) > 0 && p.batches[0].last <= seq {
		p.bytes, p.events = p.bytes+p.batches[0].bytes, p.events+p.batches[0].events
		p.batches = p.batches[1:]
	}
	final := p.closed && seq == p.received
	if final {
		p.finishedAt = time.Now()
		f.finished = append(f.finished, id)
	}
	if final || p.bytes > f.byteLimit || p.events > f.eventLimit {
		p.bytes, p.events = 0, 0
		f.urgent = append(f.urgent, id)
		notify(f.due)
		return
	}
	if !f.armed {
		f.armed = true
		notify(f.soon)
	}
}

// acknowledge returns what the server is to be told: of all processes, or only
// of those that should not wait.
func (f *sessionFeed) acknowledge(all bool) []*execwirev1.AttachSessionRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := f.urgent
	if f.urgent = nil; all {
		f.armed = false
		ids = slices.Sorted(maps.Keys(f.dirty))
	}
	var requests []*execwirev1.AttachSessionRequest
	for _, id := range ids {
		p := f.dirty[id]
		if p == nil {
			continue
		}
		delete(f.dirty, id)
		p.bytes, p.events = 0, 0
		requests = append(requests, &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
			Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: id, Seq: p.taken}}})
	}
	f.forget()
	return requests
}

// forget lets go of processes that were taken to the end so long ago that the
// server knows it; not much later it may give their ids to others. mu is held.
func (f *sessionFeed) forget() {
	for len(f.finished) > 0 {
		id := f.finished[0]
		if p := f.processes[id]; p != nil && !p.finishedAt.IsZero() {
			if time.Since(p.finishedAt) < repeatWithin {
				return
			}
			delete(f.processes, id)
		}
		f.finished = f.finished[1:]
	}
}

// attachCursors are cursors for a stream that begins now, which sends again what
// was received and not taken.
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

// cursors returns what was taken of each process, also if that is nothing: one
// of which something was received goes on there, whoever else has acknowledged
// more of it in the meantime.
func (f *sessionFeed) cursors() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	cursors := make(map[string]uint64, min(len(f.processes), maxCursors))
	for id, p := range f.processes {
		if !p.started {
			continue
		}
		if len(cursors) == maxCursors {
			break
		}
		cursors[id] = p.taken
	}
	return cursors
}

// endedWith is how a Session ended; nil if its caller ended it.
func (f *sessionFeed) endedWith() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.err, io.EOF) {
		return nil
	}
	return f.err
}
