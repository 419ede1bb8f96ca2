package eventlog

// paced reports whether a window applies: somebody owns the log, or it is held
// for a next owner.
func (l *Log) paced() bool { return l.owner != nil || l.held }

// protected reports whether an event must not be evicted.
func (l *Log) protected(seq uint64) bool { return l.paced() && seq >= l.acked.next }

// room is what the stream's writer may still be given: bytes, and the events
// they may become.
func (l *Log) room(s *stream) (bytes, events int) {
	const plenty = 1 << 30
	if !l.paced() {
		return plenty, plenty
	}
	window, most := l.limits.WindowBytes, l.limits.RetainedEvents
	bytes = min(window-l.unackedBytes-l.reservedBytes,
		l.share(window)-s.unackedBytes-s.reservedBytes)
	events = min(most-l.unackedEvents-l.reservedEvents,
		l.share(most)-s.unackedEvents-s.reservedEvents)
	return bytes, events
}

func (l *Log) hasRoom(s *stream) bool {
	bytes, events := l.room(s)
	return bytes >= l.limits.minRoom() && events > 0
}

// share is how much of a limit one stream may use up. Beside other writers it
// is so much less than the limit that a quarter of the limit is there for any
// stream that has nothing unacknowledged, whatever the others do.
func (l *Log) share(limit int) int {
	if l.openWriters <= 1 {
		return limit
	}
	return (limit - limit/4) / (l.openWriters - 1)
}

func (l *Log) reserve(s *stream, bytes, events int) {
	s.reservedBytes += bytes
	s.reservedEvents += events
	l.reservedBytes += bytes
	l.reservedEvents += events
}

func (l *Log) countUnacked(s *stream, bytes, events int) {
	s.unackedBytes += bytes
	s.unackedEvents += events
	l.unackedBytes += bytes
	l.unackedEvents += events
}

// startWindow makes p what was acknowledged. It looks at every event after p,
// which is why it belongs to taking over and not to acknowledging.
func (l *Log) startWindow(p position) {
	l.stopWindow()
	l.acked = p
	for seq := max(p.next, l.records.first); seq < l.records.end; seq++ {
		if r := l.records.at(seq); r.kind == Output {
			l.countUnacked(l.streams[r.stream], int(r.n), 1)
		}
	}
}

func (l *Log) stopWindow() {
	for _, s := range l.streams {
		if s != nil {
			l.countUnacked(s, -s.unackedBytes, -s.unackedEvents)
		}
	}
}

// acknowledge moves the window's start forward to p.
func (l *Log) acknowledge(p position) {
	for seq := max(l.acked.next, l.records.first); seq < p.next; seq++ {
		if r := l.records.at(seq); r.kind == Output {
			l.countUnacked(l.streams[r.stream], -int(r.n), -1)
		}
	}
	l.acked = p
}
