package rendezvous

import (
	"sync"
	"time"

	"github.com/execwire/execwire/internal/quota"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// hubState is the state that all routes of a hub share.
type hubState struct {
	limits       Limits
	clock        clock
	queueBudget  *budget
	streamCounts quota.Counter // per principal
	stats        *stats
	onLimit      func(limit string) // [Config.OnLimit]
}

// executorRoute routes frames between one executor and its harnesses. It may be
// used concurrently.
type executorRoute struct {
	*hubState
	id string // of the executor

	conns     int        // guarded by routeTable.mu; connections that use the route
	installMu sync.Mutex // held while an executor connects, from the change of its record

	mu       sync.Mutex
	executor *peerConn // guarded by mu; nil if not connected
	// instance identifies the executor's process, guarded by mu. It is empty if
	// there is none, or if it does not retransmit.
	instance string
	// executorGrace is the grace period of an absent instance; nil if none.
	// Guarded by mu.
	executorGrace  *gracePeriod
	streams        map[string]*stream     // guarded by mu; by id
	streamsOf      map[string]int         // guarded by mu; number of streams per principal
	capacity       int                    // guarded by mu; stream limit
	harnesses      map[*peerConn]struct{} // guarded by mu
	lastNumber     uint64                 // guarded by mu; number of the latest connection
	executorResets map[string]string      // guarded by mu; resets for an absent instance, by stream
	closed         bool                   // guarded by mu; the hub is closed
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
func (s *stream) isEnding() bool { return s.down.conn != nil && s.down.endsStream }

// gracePeriod is the time that an absent peer has to return. It is guarded by the
// route's mu.
type gracePeriod struct {
	stop   func() // stops the timer
	expire func() // nil once it is over
}

// cancel ends the grace period. A nil one is over.
func (g *gracePeriod) cancel() {
	if g != nil && g.expire != nil {
		g.stop()
		g.expire = nil
	}
}

// expireNow ends the grace period as if its time were over.
func (g *gracePeriod) expireNow() {
	if g != nil && g.expire != nil {
		expire := g.expire
		g.cancel()
		expire()
	}
}

func newExecutorRoute(h *hubState, id string) *executorRoute {
	return &executorRoute{
		hubState: h, id: id,
		streams: make(map[string]*stream), streamsOf: make(map[string]int), capacity: h.limits.StreamsPerExecutor, harnesses: make(map[*peerConn]struct{}),
		executorResets: make(map[string]string),
	}
}

// add registers a connection. One that is added after close is closed. mu is held.
func (r *executorRoute) add(c *peerConn) {
	r.lastNumber++
	c.number = r.lastNumber
	c.route = r
	if r.closed {
		c.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
}

// idle reports whether the route has no state worth keeping.
func (r *executorRoute) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor == nil && r.executorGrace == nil && len(r.harnesses) == 0 && len(r.streams) == 0
}

// startGrace starts a grace period, at whose end expire is called with mu held.
// mu is held.
func (r *executorRoute) startGrace(expire func(*gracePeriod)) *gracePeriod {
	g := &gracePeriod{}
	g.expire = func() { expire(g) }
	g.stop = r.clock.afterFunc(r.limits.StreamGrace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		g.expireNow()
	})
	return g
}

// peerClosed ends the grace period of c, which has disconnected, because the peer
// closed it for good.
func (r *executorRoute) peerClosed(c *peerConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.grace.expireNow()
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
	r.hubState.streamCounts.Release(s.principal)
	if r.streamsOf[s.principal]--; r.streamsOf[s.principal] == 0 {
		delete(r.streamsOf, s.principal)
	}
	s.up.clear()
	s.down.clear()
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

// close ends everything because the hub shuts down. Streams with ends that do not
// retransmit are reset; the others may continue with another hub process.
func (r *executorRoute) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, s := range r.streams {
		s.grace.cancel()
		plain := !r.isResumable(s)
		r.endStream(s, relay.ReasonGoingAway, plain, plain)
	}
	r.executorGrace.cancel()
	r.executorGrace = nil
	for c := range r.harnesses {
		c.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
	}
	if r.executor != nil {
		r.executor.startClose(wsconn.CodeGoingAway, relay.ReasonGoingAway)
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
