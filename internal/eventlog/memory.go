package eventlog

// memoryTier is the first tier of a log: the retained events, and the ends of each stream. Guarded by
// Log.mu.
type memoryTier struct {
	limits Limits // as WithDefaults returned them

	records       deque
	evictedExit   record // the exited event, once output after it was evicted
	exitedSeq     uint64 // 0: has not exited
	closedSeq     uint64 // 0: not closed
	streams       [streamEnd]*stream
	totalBytes    uint64 // ever appended, all streams
	time          int64  // of the last output, Unix time in ns
	retainedBytes int
	outputs       int // retained output events
	blocks        blocks
	offloaded     bool // all output is in the file, and none is retained
}

// stream returns the state of a stream, made on first use.
func (m *memoryTier) stream(id Stream) *stream {
	if id == 0 || id >= streamEnd {
		panic("eventlog: unknown " + id.String())
	}
	if m.streams[id] == nil {
		m.streams[id] = &stream{id: id}
	}
	return m.streams[id]
}

func (m *memoryTier) push(r record) uint64 {
	if m.closedSeq != 0 {
		panic("eventlog: appended after closed")
	}
	m.records.push(r)
	return m.records.end - 1
}

// appendOutput adds one event for n bytes of b, at most one chunk.
func (m *memoryTier) appendOutput(s *stream, b *block, start, n int) {
	m.push(record{
		blk: b, start: uint32(start), n: uint16(n),
		offset: s.total, before: m.totalBytes, time: m.time,
		kind: Output, stream: s.id,
	})
	b.refs++
	s.total += uint64(n)
	m.totalBytes += uint64(n)
	m.retainedBytes += n
	m.outputs++
	s.retainEnds(&m.blocks, b, start, n, m.limits.SnapshotBytes)
}

// evict removes the oldest event.
func (m *memoryTier) evict() {
	r := m.records.pop()
	if r.kind != Output {
		m.evictedExit = r // never the closed event, which is last
		return
	}
	m.retainedBytes -= int(r.n)
	m.outputs--
	m.blocks.unref(r.blk)
}

// overBudget reports whether too much output is retained: any, once the file has all of it.
// Blocks that only readers keep alive count, up to half of the limit.
func (m *memoryTier) overBudget() bool {
	if m.offloaded {
		return m.outputs > 0
	}
	allowed := m.limits.RetainedBytes - min(m.blocks.stranded, m.limits.RetainedBytes/2)
	return m.outputs > 0 && (m.retainedBytes > allowed || m.outputs > m.limits.RetainedEvents)
}

// lastSeq returns the last seq, 0 while the log is empty.
func (m *memoryTier) lastSeq() uint64 { return m.records.end - 1 }

// offsetsAt returns the offset of each stream before an event, which is in memory. It looks at all later
// events if a stream has none among them.
func (m *memoryTier) offsetsAt(seq uint64) (offsets [streamEnd]uint64) {
	found := 0
	for id, s := range m.streams {
		if s != nil {
			offsets[id] = s.total
			found++
		}
	}
	var seen [streamEnd]bool
	for ; seq < m.records.end && found > 0; seq++ {
		if r := m.records.at(seq); r.kind == Output && !seen[r.stream] {
			seen[r.stream] = true
			offsets[r.stream] = r.offset
			found--
		}
	}
	return offsets
}
