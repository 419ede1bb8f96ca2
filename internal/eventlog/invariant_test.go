package eventlog

import (
	"bytes"

	"pgregory.net/rapid"
)

// check verifies the invariants after every step.
func (m *machine) check(t *rapid.T) {
	s := m.log.Stats()
	if s.LastSeq != m.model.last() {
		t.Fatalf("last seq %d, want %d", s.LastSeq, m.model.last())
	}
	for id, total := range s.Totals {
		if total != uint64(len(m.model.streams[id])) {
			t.Fatalf("%v has %d bytes, want %d", Stream(id), total, len(m.model.streams[id]))
		}
	}
	m.checkRetention(t, s)
	m.checkWindow(t, s)
	m.checkMemory(t, s)
	m.checkFile(t, s)
	m.checkData(t, m.kept)
	m.checkData(t, m.lent)
	for _, batch := range m.borrowed {
		m.checkData(t, batch)
	}
}

// checkData verifies that the memory of events was not used for other output.
func (m *machine) checkData(t *rapid.T, events []Event) {
	for _, e := range events {
		if want := m.model.events[e.Seq-1].Data; !bytes.Equal(e.Data, want) {
			t.Fatalf("event %d has the data %x now, want %x", e.Seq, e.Data, want)
		}
	}
}

// checkFile verifies the second tier: its limits, its index, and that no more is lost than needed.
func (m *machine) checkFile(t *rapid.T, s Stats) {
	tier, files := &m.log.tier, m.files.Stats()
	if m.files == nil {
		return
	}
	if tier.size > files.PerLog || files.Bytes != tier.size || files.Bytes > files.Total {
		t.Fatalf("the file has %d bytes and all have %d, limits are %d and %d", tier.size, files.Bytes, files.PerLog, files.Total)
	}
	last, bytes := uint64(1), uint64(0)
	for _, b := range tier.blocks {
		n, events := m.model.between(b.next, b.end().next)
		before, _ := m.model.between(1, b.next)
		if b.next < last || b.bytes != uint64(n) || b.events != uint64(events) || b.before != uint64(before) || b.offset+b.size > tier.size {
			t.Fatalf("block %+v of %d bytes and %d events follows event %d", b, n, events, last-1)
		}
		for _, other := range tier.blocks {
			if other.next != b.next && other.offset < b.offset+b.size && b.offset < other.offset+other.size {
				t.Fatalf("blocks %+v and %+v overlap", b, other)
			}
		}
		last = b.end().next
		bytes += b.bytes
	}
	if s.FileBytes != bytes {
		t.Fatalf("counts %d bytes in the file, has %d", s.FileBytes, bytes)
	}
	full := int64(len(tier.blocks)) == tier.mostBlocks()
	if files.PerLog == 1<<20 && files.Total >= files.PerLog && !full && !m.mayLose { // no run writes so much
		for seq := m.maxAcked + 1; seq <= m.model.last(); seq++ {
			if !m.available(seq) {
				t.Fatalf("event %d of %d is neither acknowledged nor available", seq, m.model.last())
			}
		}
	}
}

func (m *machine) checkRetention(t *rapid.T, s Stats) {
	bytes, events := m.model.between(s.FirstRetainedSeq, m.model.last()+1)
	if s.RetainedBytes != bytes || s.RetainedEvents != events {
		t.Fatalf("retains %d bytes in %d events, should be %d in %d", s.RetainedBytes, s.RetainedEvents, bytes, events)
	}
	most, mostEvents := m.limits.RetainedBytes, m.limits.RetainedEvents
	if m.paced() {
		// Output being read when the owner arrived, and output of Append, may exceed the limits.
		most += m.excess
		mostEvents += 2*streamEnd + m.ignored
		if allowed := max(m.ownerView.mayMiss, m.acked+1); s.FirstRetainedSeq > allowed {
			t.Fatalf("event %d is unacknowledged and evicted, the first is %d", allowed, s.FirstRetainedSeq)
		}
	}
	if bytes > most || events > mostEvents {
		t.Fatalf("retains %d bytes and %d events, limits are %d and %d", bytes, events, most, mostEvents)
	}
	// No more is evicted than needed.
	if !m.offloads && s.FirstRetainedSeq > 1 && bytes < m.limits.RetainedBytes/4 && events < m.limits.RetainedEvents {
		t.Fatalf("retains only %d bytes and %d events", bytes, events)
	}
}

func (m *machine) checkWindow(t *rapid.T, s Stats) {
	if s.Owned != (m.owner != nil && !m.freed) || s.Held != m.held {
		t.Fatalf("owned %v and held %v, want owned %v, freed %v and held %v", s.Owned, s.Held, m.owner != nil, m.freed, m.held)
	}
	if !m.paced() {
		if s.UnacknowledgedBytes != 0 || s.UnacknowledgedEvents != 0 {
			t.Fatalf("counts %d bytes as unacknowledged without an owner", s.UnacknowledgedBytes)
		}
		return
	}
	bytes, events := m.model.between(max(m.acked+1, s.FirstRetainedSeq), m.model.last()+1)
	if s.Acknowledged != m.acked || s.UnacknowledgedBytes != bytes || s.UnacknowledgedEvents != events {
		t.Fatalf("acknowledged %d, open %d bytes in %d events; want %d, %d in %d",
			s.Acknowledged, s.UnacknowledgedBytes, s.UnacknowledgedEvents, m.acked, bytes, events)
	}
	if open := bytes + s.ReservedBytes; open > m.limits.WindowBytes+m.excess {
		t.Fatalf("window of %d exceeded: %d bytes unacknowledged, %d allowed", m.limits.WindowBytes, open, m.excess)
	}
}

func (m *machine) checkMemory(t *rapid.T, s Stats) {
	cursors, pinned := m.cursors()
	if s.Readers != cursors {
		t.Fatalf("counts %d cursors, want %d", s.Readers, cursors)
	}
	held, stranded := recount(m.log, pinned)
	if got := m.log.blocks; got.held != held || got.stranded != stranded {
		t.Fatalf("counts %d bytes held and %d stranded, want %d and %d", got.held, got.stranded, held, stranded)
	}
	streams := 0
	for _, st := range m.log.streams {
		if st != nil {
			streams++
		}
	}
	if most := m.limits.MaxHeldBytes(streams, cursors) + m.ignored + len(m.log.tier.blocks)*fileEntryBytes; s.HeldBytes > most {
		t.Fatalf("holds %d bytes, the bound is %d", s.HeldBytes, most)
	}
}

// cursors returns the number of open cursors and the blocks of their batches.
func (m *machine) cursors() (n int, pinned map[*block]bool) {
	pinned = map[*block]bool{}
	var all []*cursor
	for _, o := range m.observers {
		all = append(all, &o.reader.cursor)
	}
	for _, o := range m.replaced {
		all = append(all, &o.cursor)
	}
	if m.owner != nil {
		all = append(all, &m.owner.cursor)
	}
	for _, r := range all {
		for _, b := range r.pinned {
			pinned[b] = true
		}
	}
	return len(all), pinned
}

// MaxHeldBytes is the bound of Stats.HeldBytes; see the package documentation.
func (l Limits) MaxHeldBytes(streams, cursors int) int {
	l = l.WithDefaults()
	block := l.largestBlock()
	data := (l.RetainedBytes + 2*streams*l.SnapshotBytes) * 8 / 7
	data += 4*streams*block + block
	pinned := cursors * (batchBlocks*block + maxBatchEvents*eventBytes + maxFileBlock)
	// A read in progress when an owner arrives may add two events per stream. The two ends of
	// the deque and its spare are partly empty segments.
	records := (l.RetainedEvents + 2*streams + 2 + 3*segmentLen) * recordBytes
	return data + pinned + records
}
