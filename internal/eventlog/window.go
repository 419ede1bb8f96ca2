package eventlog

// paced reports whether a window applies: the log has an owner, or is held for the
// next one.
func (l *Log) paced() bool { return l.owner != nil || l.held }

// protected reports whether an event must not be evicted.
func (l *Log) protected(seq uint64) bool { return l.paced() && seq >= l.acked.next }

// space is what the stream's writer may still use: bytes, and the events they may
// become.
func (l *Log) space(s *stream) (bytes, events int) {
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

func (l *Log) hasSpace(s *stream) bool {
	bytes, events := l.space(s)
	return bytes >= l.limits.minSpace() && events > 0
}

// share is the part of a limit that one stream may use. With several writers it is so
// small that a quarter of the limit remains for any stream that has nothing
// unacknowledged, whatever the others do.
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

// startWindow makes p the end of what was acknowledged. It visits every event after
// p, so it is for taking over and not for acknowledging.
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
