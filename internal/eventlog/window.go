package eventlog

// window bounds the output that is unacknowledged or that writers may be reading.
// Guarded by Log.mu.
type window struct {
	memory *memoryTier // of the log
	// paced is set while the window applies: the log has an owner, or is held for the
	// next one. Unacknowledged output is only counted then.
	paced bool
	acked position // end of what was acknowledged; kept after the owner was released
	// lent is set while somebody may refer to the data of unacknowledged events without a pin.
	lent bool

	unackedBytes   int
	unackedEvents  int
	reservedBytes  int // in the buffers of writers
	reservedEvents int
	openWriters    int
}

// protects reports whether an event must not be evicted.
func (w *window) protects(seq uint64) bool { return w.paced && seq >= w.acked.next }

// space is what the stream's writer may still use: bytes, and the events they may
// become.
func (w *window) space(s *stream) (bytes, events int) {
	const plenty = 1 << 30
	if !w.paced {
		return plenty, plenty
	}
	most, mostEvents := w.memory.limits.WindowBytes, w.memory.limits.RetainedEvents
	bytes = min(most-w.unackedBytes-w.reservedBytes,
		w.share(most)-s.unackedBytes-s.reservedBytes)
	events = min(mostEvents-w.unackedEvents-w.reservedEvents,
		w.share(mostEvents)-s.unackedEvents-s.reservedEvents)
	return bytes, events
}

func (w *window) hasSpace(s *stream) bool {
	bytes, events := w.space(s)
	return bytes >= w.memory.limits.minSpace() && events > 0
}

// share is the part of a limit that one stream may use. With several writers it is so
// small that a quarter of the limit remains for any stream that has nothing
// unacknowledged, whatever the others do.
func (w *window) share(limit int) int {
	if w.openWriters <= 1 {
		return limit
	}
	return (limit - limit/4) / (w.openWriters - 1)
}

func (w *window) reserve(s *stream, bytes, events int) {
	s.reservedBytes += bytes
	s.reservedEvents += events
	w.reservedBytes += bytes
	w.reservedEvents += events
}

func (w *window) countUnacked(s *stream, bytes, events int) {
	s.unackedBytes += bytes
	s.unackedEvents += events
	w.unackedBytes += bytes
	w.unackedEvents += events
}

// start makes p the end of what was acknowledged. It visits every event after
// p, so it is for taking over and not for acknowledging.
func (w *window) start(p position) {
	w.stop()
	w.paced, w.acked = true, p
	w.count(p.next, w.memory.records.end, 1)
}

func (w *window) stop() {
	if w.lent {
		w.shareUnacknowledged()
	}
	w.paced = false
	for _, s := range w.memory.streams {
		if s != nil {
			w.countUnacked(s, -s.unackedBytes, -s.unackedEvents)
		}
	}
}

// shareUnacknowledged keeps what is lent from being used again: nothing protects it any more.
func (w *window) shareUnacknowledged() {
	w.lent = false
	for seq := max(w.acked.next, w.memory.records.first); seq < w.memory.records.end; seq++ {
		w.memory.records.at(seq).share(seq)
	}
}

// acknowledge moves the window's start forward to p.
func (w *window) acknowledge(p position) {
	w.count(w.acked.next, p.next, -1)
	w.acked = p
}

// count adds the retained output with from <= seq < end to what is
// unacknowledged, or with a sign of -1 subtracts it.
func (w *window) count(from, end uint64, sign int) {
	for seq := max(from, w.memory.records.first); seq < end; seq++ {
		if r := w.memory.records.at(seq); r.kind == Output {
			w.countUnacked(w.memory.streams[r.stream], sign*int(r.n), sign)
		}
	}
}
