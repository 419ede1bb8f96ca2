package rendezvous

import "github.com/execwire/execwire/relay"

// connectExecutor makes c the connection of the executor and closes the previous
// one. instance identifies the executor's process; it is empty if that does not
// retransmit. Streams of the same instance continue, others end. It reports
// whether there was a previous connection.
func (r *executorRoute) connectExecutor(c *peerConn, instance string) (tookOver bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(c)
	before := r.executor
	same := instance != "" && instance == r.instance
	if before != nil {
		r.executor = nil
		r.detachExecutor(before)
		before.startClose(CodeSuperseded, reasonSuperseded)
	}
	r.executorGrace.cancel()
	r.executorGrace = nil
	r.executor = c
	if r.capacity = r.limits.StreamsPerExecutor; c.capacity > 0 {
		r.capacity = min(r.capacity, c.capacity)
	}
	r.endExecutorStreams(same)
	if same {
		for id, reason := range r.executorResets {
			c.sendReset(id, reason)
		}
	}
	clear(r.executorResets)
	r.instance = instance
	return before != nil
}

// detachExecutor clears the queues to a former connection of the executor, and
// keeps its unsent resets. mu is held.
func (r *executorRoute) detachExecutor(c *peerConn) {
	for _, s := range r.streams {
		s.up.clear()
	}
	for _, reset := range c.resets {
		r.executorResets[reset.stream] = reset.reason
	}
	c.resets = nil
}

// endExecutorStreams ends the streams of an executor whose connection has ended.
// If the executor may continue, those whose ends both retransmit survive, and it
// receives resets for the others. If its own reset is queued, the harness receives
// that, and no executor receives anything of the stream any more. mu is held.
func (r *executorRoute) endExecutorStreams(mayContinue bool) {
	for _, s := range r.streams {
		switch {
		case mayContinue && r.isResumable(s):
		case s.isEnding():
			s.orphaned, s.sentToExecutor = true, false
		default:
			r.endStream(s, relay.ReasonExecutorGone, true, mayContinue)
		}
	}
}

// disconnectExecutor removes the connection c.
func (r *executorRoute) disconnectExecutor(c *peerConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.executor != c || r.closed {
		return
	}
	r.executor = nil
	r.detachExecutor(c)
	if r.instance == "" {
		r.endExecutorStreams(false)
		clear(r.executorResets)
		return
	}
	r.executorGrace = r.startGrace(r.expireExecutor)
	c.grace = r.executorGrace
	r.endExecutorStreams(true)
}

// expireExecutor ends the streams of an instance that has not returned. mu is
// held.
func (r *executorRoute) expireExecutor(*gracePeriod) {
	r.executorGrace = nil
	r.endExecutorStreams(false)
	r.instance = ""
	clear(r.executorResets)
}

// handleExecutorFrame routes a frame received on c, which it owns from then on. It returns
// the connection whose sendNow is to be called then, or nil.
func (r *executorRoute) handleExecutorFrame(c *peerConn, frame []byte) (to *peerConn) {
	header, err := relay.ParseHeader(frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.streams[header.Stream]
	switch {
	case err != nil:
		r.stats.drop(dropMalformed)
	case r.executor != c || c.isClosing:
		r.stats.drop(dropStale)
	case s == nil || s.orphaned:
		r.stats.drop(dropUnknown)
	case s.harness == nil:
		s.lastUsed = r.clock.now()
		r.stats.drop(dropOffline)
	default:
		s.lastUsed = r.clock.now()
		return s.harness.enqueue(s.down, frame, header.Reset)
	}
	return nil
}

// isExpected reports whether the executor is connected or within its grace
// period.
func (r *executorRoute) isExpected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor != nil || r.executorGrace != nil
}

// isConnected reports whether the executor is connected.
func (r *executorRoute) isConnected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor != nil
}
