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
	if r.executorGrace != nil {
		r.stopGrace(r.executorGrace)
		r.executorGrace = nil
	}
	r.executor = c
	if r.capacity = r.limits.StreamsPerExecutor; c.capacity > 0 {
		r.capacity = min(r.capacity, c.capacity)
	}
	if same {
		r.endPlainStreams()
		for id, reason := range r.executorResets {
			c.sendReset(id, reason)
		}
	} else {
		r.endAllStreams()
	}
	clear(r.executorResets)
	r.instance = instance
	r.closeIfShutDown(c)
	return before != nil
}

// detachExecutor clears the queues to a former connection of the executor, and
// keeps its unsent resets. mu is held.
func (r *executorRoute) detachExecutor(c *peerConn) {
	for _, s := range r.streams {
		r.clearQueue(s.up, c)
	}
	for _, reset := range c.resets {
		r.executorResets[reset.stream] = reset.reason
	}
	c.resets = nil
}

// endPlainStreams ends the streams that do not survive the executor's connection.
// mu is held.
func (r *executorRoute) endPlainStreams() {
	for _, s := range r.streams {
		if !r.isResumable(s) {
			r.endForExecutor(s, true)
		}
	}
}

// endAllStreams ends all streams, because the executor is gone. mu is held.
func (r *executorRoute) endAllStreams() {
	for _, s := range r.streams {
		r.endForExecutor(s, false)
	}
}

// endForExecutor ends a stream because its executor is gone. If the executor's own
// reset is queued, the harness receives that, and no executor receives anything of
// the stream any more. mu is held.
func (r *executorRoute) endForExecutor(s *stream, resetExecutor bool) {
	if s.isEnding() {
		s.orphaned, s.sentToExecutor = true, false
		return
	}
	r.endStream(s, relay.ReasonExecutorGone, true, resetExecutor)
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
		r.endAllStreams()
		clear(r.executorResets)
		return
	}
	r.executorGrace = r.startGrace(r.expireExecutor)
	c.grace = r.executorGrace
	r.endPlainStreams()
}

// expireExecutor ends the streams of an instance that has not returned. mu is
// held.
func (r *executorRoute) expireExecutor(*gracePeriod) {
	r.executorGrace = nil
	r.endAllStreams()
	r.instance = ""
	clear(r.executorResets)
}

// executorClosed ends the grace period of c, which has disconnected, because the
// executor closed it for good.
func (r *executorRoute) executorClosed(c *peerConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.executorGrace != nil && r.executorGrace == c.grace {
		r.stopGrace(r.executorGrace)
		r.expireExecutor(nil)
	}
}

// handleExecutorFrame routes a frame received on c, which it owns from then on.
func (r *executorRoute) handleExecutorFrame(c *peerConn, frame []byte) {
	header, err := relay.ParseHeader(frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.streams[header.Stream]
	switch {
	case err != nil:
		r.countDrop(dropMalformed)
	case r.executor != c || c.isClosing:
		r.countDrop(dropStale)
	case s == nil || s.orphaned:
		r.countDrop(dropUnknown)
	case s.harness == nil:
		s.lastUsed = r.clock.now()
		r.countDrop(dropOffline)
	default:
		s.lastUsed = r.clock.now()
		r.enqueue(s, s.down, s.harness, frame, header.Reset)
	}
}

func (r *executorRoute) countDrop(reason dropReason) { r.stats.dropped[reason].Add(1) }

// isExpected reports whether the executor is connected or within its grace
// period.
func (r *executorRoute) isExpected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor != nil || r.executorGrace != nil
}

// isConnected reports whether the executor is connected, and its number of
// streams.
func (r *executorRoute) isConnected() (connected bool, streams int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executor != nil, len(r.streams)
}
