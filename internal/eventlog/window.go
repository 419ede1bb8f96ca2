package eventlog

// window bounds the output that is unacknowledged or that writers may be reading.
// Guarded by Log.mu.
type window struct {
	limits *Limits // of the log
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
	most, mostEvents := w.limits.WindowBytes, w.limits.RetainedEvents
	bytes = min(most-w.unackedBytes-w.reservedBytes,
		w.share(most)-s.unackedBytes-s.reservedBytes)
	events = min(mostEvents-w.unackedEvents-w.reservedEvents,
		w.share(mostEvents)-s.unackedEvents-s.reservedEvents)
	return bytes, events
}

func (w *window) hasSpace(s *stream) bool {
	bytes, events := w.space(s)
	return bytes >= w.limits.minSpace() && events > 0
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

// startWindow makes p the end of what was acknowledged. It visits every event after
// p, so it is for taking over and not for acknowledging.
func (l *Log) startWindow(p position) {
	l.stopWindow()
	l.window.paced, l.window.acked = true, p
	l.countFrom(p.next, l.records.end, 1)
}

func (l *Log) stopWindow() {
	if l.window.lent {
		l.shareUnacknowledged()
	}
	l.window.paced = false
	for _, s := range l.streams {
		if s != nil {
			l.window.countUnacked(s, -s.unackedBytes, -s.unackedEvents)
		}
	}
}

// shareUnacknowledged keeps what is lent from being used again: nothing protects it any more.
func (l *Log) shareUnacknowledged() {
	l.window.lent = false
	for seq := max(l.window.acked.next, l.records.first); seq < l.records.end; seq++ {
		l.records.at(seq).share(seq)
	}
}

// acknowledge moves the window's start forward to p.
func (l *Log) acknowledge(p position) {
	l.countFrom(l.window.acked.next, p.next, -1)
	l.window.acked = p
}

// countFrom adds the retained output with from <= seq < end to what is
// unacknowledged, or with a sign of -1 subtracts it.
func (l *Log) countFrom(from, end uint64, sign int) {
	for seq := max(from, l.records.first); seq < end; seq++ {
		if r := l.records.at(seq); r.kind == Output {
			l.window.countUnacked(l.streams[r.stream], sign*int(r.n), sign)
		}
	}
}
