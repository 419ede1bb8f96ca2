package rendezvous

import (
	"bytes"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// hubwide is what all exchanges of a hub share.
type hubwide struct {
	limits  Limits
	clock   clock
	total   *budget
	streams *tally // of each principal
	counts  *counts
}

// exchange routes the frames between the lines of one executor and those of its
// harnesses. It may be used concurrently.
type exchange struct {
	*hubwide
	id string // of the executor

	mu       sync.Mutex
	executor *line // guarded by mu; nil while there is none
	// instance is the process that the executor's end of all streams is in,
	// guarded by mu. It is empty if there is none, or if that does not retransmit.
	instance string
	// vacant ends the grace of an instance that is away; nil if none is. Guarded
	// by mu.
	vacant   *departure
	streams  map[string]*stream      // guarded by mu; by id
	of       map[string]int          // guarded by mu; how many streams each principal has
	capacity int                     // guarded by mu; how many streams the executor takes
	lines    map[*line]struct{}      // guarded by mu; of harnesses
	last     uint64                  // guarded by mu; the number of the latest line
	owed     map[string]string       // guarded by mu; what the instance that is away is told when it is back, by stream
	untold   map[owner]*untold       // guarded by mu; the same of harnesses
	closed   bool                    // guarded by mu; the hub is closed
	parting  map[*departure]struct{} // guarded by mu; graces that have not ended
}

// stream is one stream. It is guarded by the exchange's mu.
type stream struct {
	id        string
	principal string // who named it first
	line      *line  // of its harness; nil while that is away
	resumable bool   // its harness retransmits
	away      *departure
	up, down  *outlet // to the executor, and to the harness
	reached   bool    // the executor was sent something of it
	used      time.Time
}

// owner is a principal with a stream that it named.
type owner struct{ principal, stream string }

// untold is the end of a stream that its harness, being away, does not know.
type untold struct {
	reason string
	away   *departure
}

// departure is an end that retransmits and is away.
type departure struct {
	stop func() // ends the wait for it; the grace has not ended
}

func newExchange(h *hubwide, id string) *exchange {
	return &exchange{
		hubwide: h, id: id,
		streams: make(map[string]*stream), of: make(map[string]int), capacity: h.limits.StreamsPerExecutor, lines: make(map[*line]struct{}),
		owed: make(map[string]string), untold: make(map[owner]*untold), parting: make(map[*departure]struct{}),
	}
}

// join gives a line its place. mu is held.
func (x *exchange) join(l *line) {
	x.last++
	l.number = x.last
	l.exchange = x
}

// unused reports whether there is nothing that would be missed.
func (x *exchange) unused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.executor == nil && x.vacant == nil && len(x.lines) == 0 && len(x.streams) == 0 && len(x.parting) == 0
}

// wait has over called, with mu held, once the grace of whoever departs has
// ended. mu is held.
func (x *exchange) wait(over func(*departure)) *departure {
	d := &departure{}
	x.parting[d] = struct{}{}
	d.stop = x.clock.afterFunc(x.limits.StreamGrace, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if _, waiting := x.parting[d]; waiting {
			x.back(d)
			over(d)
		}
	})
	return d
}

// back ends the wait for an end. mu is held.
func (x *exchange) back(d *departure) {
	d.stop()
	delete(x.parting, d)
}

// retransmit reports whether both ends of a stream do. mu is held.
func (x *exchange) retransmit(s *stream) bool { return s.resumable && x.instance != "" }

// end ends a stream and tells those of its ends that are named. An end that is
// away is told when it is back. mu is held.
func (x *exchange) end(s *stream, reason string, tellHarness, tellExecutor bool) {
	delete(x.streams, s.id)
	x.hubwide.streams.remove(s.principal)
	if x.of[s.principal]--; x.of[s.principal] == 0 {
		delete(x.of, s.principal)
	}
	x.clear(s.up, x.executor)
	x.clear(s.down, s.line)
	if tellHarness || tellExecutor {
		x.counts.resets.Add(1)
	}
	if s.line != nil {
		delete(s.line.streams, s)
		if tellHarness {
			s.line.tell(s.id, reason)
		}
	} else if tellHarness && s.away != nil {
		x.keepUntold(owner{s.principal, s.id}, &untold{reason: reason, away: s.away})
	}
	switch {
	case !tellExecutor || !s.reached:
	case x.executor != nil:
		x.executor.tell(s.id, reason)
	case x.vacant != nil:
		x.owed[s.id] = reason
	}
}

// clear empties a queue, which waits for l unless that is nil. mu is held.
func (x *exchange) clear(o *outlet, l *line) {
	if o.waiting && l != nil {
		l.queued -= o.bytes
		for i, other := range l.ready {
			if other == o {
				l.ready = append(l.ready[:i], l.ready[i+1:]...)
				break
			}
		}
	}
	x.total.give(o.stream.principal, beyondOwn(o.bytes))
	o.queue = queue{}
}

// send queues a frame, of which it keeps a copy, for an end of s by l. mu is
// held.
func (x *exchange) send(s *stream, o *outlet, l *line, frame []byte) {
	if x.refuse(s, o, l, frame) {
		return
	}
	o.push(bytes.Clone(frame))
	l.queued += weight(frame)
	x.counts.frames.Add(1)
	x.counts.bytes.Add(int64(len(frame)))
	if !o.waiting {
		o.waiting = true
		l.ready = append(l.ready, o)
	}
	l.rouse()
}

// refuse decides about a frame that does not fit. Ends that retransmit will send
// it again, unless nothing moves; others would miss it. mu is held.
func (x *exchange) refuse(s *stream, o *outlet, l *line, frame []byte) bool {
	most := x.limits.PlainQueueBytes
	retransmit := x.retransmit(s)
	if retransmit {
		most = x.limits.QueueBytes
	}
	if o.fits(frame, most) && x.makeRoom(o, l, weight(frame)) {
		return false
	}
	now := x.clock.now()
	if o.stuck.IsZero() {
		o.stuck = now
	}
	x.counts.dropped[dropFull].Add(1)
	if !retransmit || now.Sub(o.stuck) >= x.limits.StreamGrace {
		x.end(s, relay.ReasonSlowConsumer, true, true)
	}
	return true
}

// makeRoom takes from what l, the principal of the stream and the hub may keep
// waiting, so that o has so many bytes more. If l has too much its longest queue
// gives way, if the principal has, the longest of the principal at l: a stream does
// not lose because another one is slow. mu is held.
func (x *exchange) makeRoom(o *outlet, l *line, bytes int64) bool {
	more := beyondOwn(o.bytes+bytes) - beyondOwn(o.bytes)
	for {
		full := l.queued+bytes > x.limits.ConnectionQueueBytes
		if !full && x.total.take(o.stream.principal, more, o.beside(l)) {
			return true
		}
		longest := o
		for _, other := range l.ready {
			if other.bytes > longest.bytes && (full || other.stream.principal == o.stream.principal) {
				longest = other
			}
		}
		if longest == o || longest.bytes <= o.bytes+bytes {
			return o.bytes+bytes <= ownBytes
		}
		if x.retransmit(longest.stream) {
			x.counts.dropped[dropFull].Add(int64(len(longest.frames)))
			x.clear(longest, l)
		} else {
			x.end(longest.stream, relay.ReasonSlowConsumer, true, true)
		}
	}
}

// dismiss ends everything because the hub is closed: the streams of ends that do
// not retransmit are reset, the others may be taken up at whoever serves next.
func (x *exchange) dismiss() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, s := range x.streams {
		plain := !x.retransmit(s)
		x.end(s, relay.ReasonGoingAway, plain, plain)
	}
	for d := range x.parting {
		x.back(d)
	}
	x.vacant = nil
	for l := range x.lines {
		l.finish(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
	if x.executor != nil {
		x.executor.finish(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
}

// endIfClosed closes a line that came too late to be dismissed. mu is held.
func (x *exchange) endIfClosed(l *line) {
	if x.closed {
		l.finish(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
}

// forget forgets streams that nobody has used for long, of which both ends would
// have.
func (x *exchange) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.now()
	for _, s := range x.streams {
		if x.retransmit(s) && now.Sub(s.used) >= x.limits.StreamIdle {
			x.end(s, "", false, false)
		}
	}
}

// size returns how many streams there are.
func (x *exchange) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.streams)
}
