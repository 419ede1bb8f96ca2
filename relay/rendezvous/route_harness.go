package rendezvous

import "github.com/execwire/execwire/relay"

// connectHarness adds a connection of a harness.
func (r *executorRoute) connectHarness(c *peerConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(c)
	r.harnesses[c] = struct{}{}
}

// disconnectHarness removes a connection. Streams whose ends both retransmit wait
// for the principal to continue them on another connection.
func (r *executorRoute) disconnectHarness(c *peerConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.harnesses, c)
	if r.closed {
		return
	}
	var grace *gracePeriod
	for s := range c.streams {
		if !r.isResumable(s) {
			r.endStream(s, relay.ReasonHarnessGone, false, true)
			continue
		}
		if grace == nil {
			grace = r.startGrace(r.expireHarness)
		}
		s.down.clear()
		s.harness, s.grace = nil, grace
	}
	clear(c.streams)
	c.grace = grace
}

// expireHarness ends the streams of a harness that has not returned. mu is held.
func (r *executorRoute) expireHarness(grace *gracePeriod) {
	for _, s := range r.streams {
		if s.grace == grace {
			r.endStream(s, relay.ReasonHarnessGone, false, true)
		}
	}
}

// handleHarnessFrame routes a frame received on c, which it owns from then on. It returns
// the connection whose sendNow is to be called then, or nil.
func (r *executorRoute) handleHarnessFrame(c *peerConn, frame []byte) (to *peerConn) {
	header, err := relay.ParseHeader(frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.stats.drop(dropMalformed)
		return nil
	case c.isClosing:
		r.stats.drop(dropStale)
		return nil
	}
	s := r.streams[header.Stream]
	if s == nil {
		s = r.beginStream(c, header.Stream)
	} else if !r.adoptStream(s, c) {
		s = nil
	}
	switch {
	case s == nil:
	case s.orphaned && s.isEnding():
		r.stats.drop(dropEnded)
	case s.orphaned: // its reset was queued on another connection
		r.endStream(s, relay.ReasonExecutorGone, true, false)
	case r.executor == nil:
		s.lastUsed = r.clock.now()
		r.stats.drop(dropOffline)
	default:
		s.lastUsed = r.clock.now()
		return r.executor.enqueue(s.up, frame, header.Reset)
	}
	return nil
}

// refuseStream resets a stream that did not begin because of a limit. mu is held.
func (r *executorRoute) refuseStream(c *peerConn, id, limit string) {
	r.onLimit(limit)
	c.sendReset(id, relay.ReasonStreamLimit)
}

// beginStream creates the stream for a first frame on c. If it may not, it sends
// a reset and returns nil. mu is held.
func (r *executorRoute) beginStream(c *peerConn, id string) *stream {
	if _, ended := c.endedIDs[id]; ended {
		r.stats.drop(dropEnded)
		return nil
	}
	full := len(r.streams) >= r.capacity
	switch reachable := r.executor != nil || r.executorGrace != nil && c.resumable; {
	case !reachable:
		c.sendReset(id, relay.ReasonExecutorGone)
		return nil
	case len(c.streams) >= r.limits.StreamsPerConnection:
		r.refuseStream(c, id, "streams_per_connection")
		return nil
	case r.executor != nil && len(r.executor.resets) >= r.limits.StreamsPerExecutor, full && !r.mayEvict(c):
		r.refuseStream(c, id, "streams_per_executor")
		return nil
	case !r.hubState.streamCounts.Acquire(c.principal):
		r.refuseStream(c, id, "streams_per_principal")
		return nil
	}
	if full {
		r.endStream(r.evictable(c), relay.ReasonStreamLimit, true, true)
	}
	s := &stream{id: id, principal: c.principal, harness: c, resumable: c.resumable, lastUsed: r.clock.now()}
	r.streamsOf[s.principal]++
	s.up, s.down = &sendQueue{stream: s}, &sendQueue{stream: s}
	r.streams[id] = s
	c.streams[s] = struct{}{}
	return s
}

// adoptStream moves s to c, if c is a later connection of the same principal. mu
// is held.
func (r *executorRoute) adoptStream(s *stream, c *peerConn) bool {
	switch {
	case s.principal != c.principal:
		r.stats.drop(dropForbidden)
		return false
	case s.harness == c:
		return true
	case s.harness != nil && s.harness.number > c.number:
		r.stats.drop(dropStale)
		return false
	}
	if s.harness != nil {
		s.down.clear()
		delete(s.harness.streams, s)
	}
	s.harness, s.grace, s.resumable = c, nil, c.resumable
	c.streams[s] = struct{}{}
	return true
}
