package rendezvous

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// hubState is the state that all routes of a hub share.
type hubState struct {
	limits       Limits
	clock        clock
	queueBudget  *budget
	streamCounts *counter // per principal
	stats        *stats
}

// executorRoute routes frames between one executor and its harnesses. It may be
// used concurrently.
type executorRoute struct {
	*hubState
	id string // of the executor

	conns     int        // guarded by Hub.mu; connections that use the route
	installMu sync.Mutex // held while an executor connects, from the change of its record

	mu       sync.Mutex
	executor *peerConn // guarded by mu; nil if not connected
	// instance identifies the executor's process, guarded by mu. It is empty if
	// there is none, or if it does not retransmit.
	instance string
	// executorGrace is the grace period of an absent instance; nil if none.
	// Guarded by mu.
	executorGrace  *gracePeriod
	streams        map[string]*stream        // guarded by mu; by id
	streamsOf      map[string]int            // guarded by mu; number of streams per principal
	capacity       int                       // guarded by mu; stream limit
	harnesses      map[*peerConn]struct{}    // guarded by mu
	lastNumber     uint64                    // guarded by mu; number of the latest connection
	executorResets map[string]string         // guarded by mu; resets for an absent instance, by stream
	closed         bool                      // guarded by mu; the hub is closed
	graces         map[*gracePeriod]struct{} // guarded by mu; running grace periods
}

// stream is one stream. It is guarded by the route's mu.
type stream struct {
	id             string
	principal      string    // who began it
	harness        *peerConn // nil while absent
	resumable      bool      // its harness retransmits
	grace          *gracePeriod
	up, down       *sendQueue // to the executor, and to the harness
	sentToExecutor bool       // the executor was sent a frame of it
	orphaned       bool       // its executor is gone, and its reset is queued for the harness
	lastUsed       time.Time
}

// isEnding reports whether a reset by the executor is queued for the harness, which
// ends the stream once it is sent. The route's mu is held.
func (s *stream) isEnding() bool { return s.harness != nil && s.down.ready && s.down.endsStream }

// gracePeriod is the time that an absent peer has to return.
type gracePeriod struct {
	stop func() // stops the timer
}

func newExecutorRoute(h *hubState, id string) *executorRoute {
	return &executorRoute{
		hubState: h, id: id,
		streams: make(map[string]*stream), streamsOf: make(map[string]int), capacity: h.limits.StreamsPerExecutor, harnesses: make(map[*peerConn]struct{}),
		executorResets: make(map[string]string), graces: make(map[*gracePeriod]struct{}),
	}
}

// add registers a connection. mu is held.
func (r *executorRoute) add(c *peerConn) {
	r.lastNumber++
	c.number = r.lastNumber
	c.route = r
}

// idle reports whether the route has no state worth keeping.
func (r *executorRoute) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor == nil && r.executorGrace == nil && len(r.harnesses) == 0 && len(r.streams) == 0 && len(r.graces) == 0
}

// startGrace starts a grace period, at whose end expire is called with mu held.
// mu is held.
func (r *executorRoute) startGrace(expire func(*gracePeriod)) *gracePeriod {
	g := &gracePeriod{}
	r.graces[g] = struct{}{}
	g.stop = r.clock.afterFunc(r.limits.StreamGrace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, waiting := r.graces[g]; waiting {
			r.stopGrace(g)
			expire(g)
		}
	})
	return g
}

// stopGrace ends a grace period. mu is held.
func (r *executorRoute) stopGrace(g *gracePeriod) {
	g.stop()
	delete(r.graces, g)
}

// isResumable reports whether both ends of a stream retransmit. mu is held.
func (r *executorRoute) isResumable(s *stream) bool {
	return s.resumable && r.instance != "" && !s.orphaned
}

// endStream ends a stream and sends resets as requested. An absent executor
// receives its reset when it returns. An absent harness continues the stream when
// it returns, and the executor resets it. mu is held.
func (r *executorRoute) endStream(s *stream, reason string, resetHarness, resetExecutor bool) {
	delete(r.streams, s.id)
	r.hubState.streamCounts.remove(s.principal)
	if r.streamsOf[s.principal]--; r.streamsOf[s.principal] == 0 {
		delete(r.streamsOf, s.principal)
	}
	r.clearQueue(s.up, r.executor)
	r.clearQueue(s.down, s.harness)
	if resetHarness || resetExecutor {
		r.stats.resets.Add(1)
	}
	if s.harness != nil {
		delete(s.harness.streams, s)
		if resetHarness {
			s.harness.sendReset(s.id, reason)
		}
	}
	switch {
	case !resetExecutor || !s.sentToExecutor:
	case r.executor != nil:
		r.executor.sendReset(s.id, reason)
	case r.executorGrace != nil:
		r.executorResets[s.id] = reason
	}
}

// clearQueue empties a queue. If c is not nil it is the connection that the queue
// belongs to. mu is held.
func (r *executorRoute) clearQueue(q *sendQueue, c *peerConn) {
	if q.ready && c != nil {
		c.queuedBytes -= q.bytes
		for i, other := range c.ready {
			if other == q {
				c.ready = append(c.ready[:i], c.ready[i+1:]...)
				break
			}
		}
	}
	r.queueBudget.release(q.stream.principal, beyondReserved(q.bytes))
	q.queue = queue{}
}

// enqueue queues a frame for the peer on c. reset tells whether it ends the
// stream. mu is held.
func (r *executorRoute) enqueue(s *stream, q *sendQueue, c *peerConn, frame []byte, reset bool) {
	if r.overflows(s, q, c, frame) {
		return
	}
	q.push(frame, reset)
	c.queuedBytes += weight(frame)
	r.stats.frames.Add(1)
	r.stats.bytes.Add(int64(len(frame)))
	if !q.ready {
		q.ready = true
		c.ready = append(c.ready, q)
	}
	c.wake.Set()
}

// overflows reports whether a frame does not fit, and handles that: the sender
// retransmits it later, unless the queue is stuck or the sender does not
// retransmit; then the stream ends. mu is held.
func (r *executorRoute) overflows(s *stream, q *sendQueue, c *peerConn, frame []byte) bool {
	limit := r.limits.PlainQueueBytes
	retransmit := r.isResumable(s)
	if retransmit {
		limit = r.limits.QueueBytes
	}
	if q.fits(frame, limit) && r.makeSpace(q, c, weight(frame)) {
		return false
	}
	now := r.clock.now()
	if q.stuckSince.IsZero() {
		q.stuckSince = now
	}
	r.stats.dropped[dropFull].Add(1)
	if !retransmit || now.Sub(q.stuckSince) >= r.limits.StreamGrace {
		r.endStream(s, relay.ReasonSlowConsumer, true, true)
	}
	return true
}

// makeSpace reserves bytes for q in the limits of c, the principal and the hub.
// At the limit of c its longest queue is cleared; at that of the principal, the
// longest of the principal on c. Thus a slow stream does not affect others. mu is
// held.
func (r *executorRoute) makeSpace(q *sendQueue, c *peerConn, bytes int64) bool {
	more := beyondReserved(q.bytes+bytes) - beyondReserved(q.bytes)
	for {
		full := c.queuedBytes+bytes > r.limits.ConnectionQueueBytes
		if !full && r.queueBudget.reserve(q.stream.principal, more, q.queuedBeside(c)) {
			return true
		}
		longest := q
		for _, other := range c.ready {
			if other.bytes > longest.bytes && (full || other.stream.principal == q.stream.principal) {
				longest = other
			}
		}
		if longest == q || longest.bytes <= q.bytes+bytes {
			return q.bytes+bytes <= reservedBytes
		}
		if r.isResumable(longest.stream) {
			r.stats.dropped[dropFull].Add(int64(len(longest.frames)))
			r.clearQueue(longest, c)
		} else {
			r.endStream(longest.stream, relay.ReasonSlowConsumer, true, true)
		}
	}
}

// close ends everything because the hub shuts down. Streams with ends that do not
// retransmit are reset; the others may continue with another hub process.
func (r *executorRoute) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, s := range r.streams {
		plain := !r.isResumable(s)
		r.endStream(s, relay.ReasonGoingAway, plain, plain)
	}
	for g := range r.graces {
		r.stopGrace(g)
	}
	r.executorGrace = nil
	for c := range r.harnesses {
		c.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
	if r.executor != nil {
		r.executor.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
}

// closeIfShutDown closes a connection that was added after close. mu is held.
func (r *executorRoute) closeIfShutDown(c *peerConn) {
	if r.closed {
		c.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
}

// endIdleStreams forgets resumable streams that have been idle for too long.
func (r *executorRoute) endIdleStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now()
	for _, s := range r.streams {
		if r.isResumable(s) && now.Sub(s.lastUsed) >= r.limits.StreamIdle {
			r.endStream(s, "", false, false)
		}
	}
}

// streamCount returns the number of streams.
func (r *executorRoute) streamCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.streams)
}
