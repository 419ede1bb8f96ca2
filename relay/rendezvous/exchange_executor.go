package rendezvous

import "github.com/execwire/execwire/relay"

// connectExecutor makes l the line of the executor, and closes the one that was.
// instance is the process that it is in, empty of one that does not retransmit:
// the streams of the same one go on, those of another end. It reports whether
// another line was.
func (x *exchange) connectExecutor(l *line, instance string) (tookOver bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.join(l)
	before := x.executor
	same := instance != "" && instance == x.instance
	if before != nil {
		x.executor = nil
		x.leave(before)
		before.finish(CodeSuperseded, reasonSuperseded)
	}
	if x.vacant != nil {
		x.back(x.vacant)
		x.vacant = nil
	}
	x.executor = l
	if x.capacity = x.limits.StreamsPerExecutor; l.capacity > 0 {
		x.capacity = min(x.capacity, l.capacity)
	}
	if same {
		x.endPlain()
		for id, reason := range x.owed {
			l.tell(id, reason)
		}
	} else {
		x.endAll()
	}
	clear(x.owed)
	x.instance = instance
	x.endIfClosed(l)
	return before != nil
}

// leave empties the queues of frames that wait for a line which is not the
// executor's any more, and keeps what it has not been told. mu is held.
func (x *exchange) leave(l *line) {
	for _, s := range x.streams {
		x.clear(s.up, l)
	}
	for _, n := range l.control {
		x.owed[n.stream] = n.reason
	}
	l.control = nil
}

// endPlain ends the streams that do not survive the executor's line. mu is held.
func (x *exchange) endPlain() {
	for _, s := range x.streams {
		if !x.retransmit(s) {
			x.end(s, relay.ReasonExecutorGone, true, true)
		}
	}
}

// endAll ends all streams, whose executor is gone. mu is held.
func (x *exchange) endAll() {
	for _, s := range x.streams {
		x.end(s, relay.ReasonExecutorGone, true, false)
	}
}

// departExecutor says that the line l has ended.
func (x *exchange) departExecutor(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.executor != l || x.closed {
		return
	}
	x.executor = nil
	x.leave(l)
	if x.instance == "" {
		x.endAll()
		clear(x.owed)
		return
	}
	x.vacant = x.wait(x.vacate)
	l.away = x.vacant
	x.endPlain()
}

// vacate ends what waited for an instance that has not come back. mu is held.
func (x *exchange) vacate(*departure) {
	x.vacant = nil
	x.endAll()
	x.instance = ""
	clear(x.owed)
}

// executorIsDone says of the line l, which has departed, that its end closed it
// as one that does not come back.
func (x *exchange) executorIsDone(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.vacant != nil && x.vacant == l.away {
		x.back(x.vacant)
		x.vacate(nil)
	}
}

// fromExecutor routes a frame that came on l.
func (x *exchange) fromExecutor(l *line, frame []byte) {
	id, err := relay.StreamID(frame)
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.streams[id]
	switch {
	case err != nil:
		x.drop(dropMalformed)
	case x.executor != l || l.over:
		x.drop(dropStale)
	case s == nil:
		x.drop(dropUnknown)
	case s.line == nil:
		s.used = x.clock.now()
		x.drop(dropAway)
	default:
		s.used = x.clock.now()
		x.send(s, s.down, s.line, frame)
	}
}

func (x *exchange) drop(why drop) { x.counts.dropped[why].Add(1) }

// isExpected reports whether the executor is connected, or may be back.
func (x *exchange) isExpected() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.executor != nil || x.vacant != nil
}

// isConnected reports whether the executor is, and how many streams it has.
func (x *exchange) isConnected() (connected bool, streams int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.executor != nil, len(x.streams)
}
