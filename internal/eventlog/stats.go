package eventlog

// Stats describe a log at one moment.
type Stats struct {
	LastSeq          uint64 // 0: empty
	FirstRetainedSeq uint64 // in memory; LastSeq+1: nothing is retained
	// FirstAvailableSeq is the first event that a reader from 0 gets, from the file or memory.
	FirstAvailableSeq uint64
	FileBytes         uint64 // output bytes in the file
	HasFile           bool   // Discard has a file to close
	CanOffload        bool   // Offload has something to do
	RetainedBytes     int    // output bytes retained
	RetainedEvents    int    // output events retained
	// HeldBytes is the memory of the log: the capacity of blocks that are alive
	// for the log or for the last batch of a cursor, and of the event records and the
	// index of the file.
	HeldBytes int
	// Totals are the bytes ever written, indexed by Stream.
	Totals [streamEnd]uint64

	Exited bool // AppendExited was called
	Closed bool // AppendClosed was called

	Owned        bool   // it has an owner
	Held         bool   // released with hold
	Acknowledged uint64 // seq; also of the last owner, once there is none
	// UnacknowledgedBytes and ReservedBytes (of writers' buffers) are together at
	// most a window. The former is 0 when neither owned nor held.
	UnacknowledgedBytes  int
	ReservedBytes        int
	UnacknowledgedEvents int

	Readers int // open cursors, owners included
	// Blocked is set while a writer waits for space: its stream is not read, because the
	// owner has a full window to acknowledge.
	Blocked bool
}

// Stats describes the log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := Stats{
		LastSeq:              l.lastSeq(),
		FirstRetainedSeq:     l.records.first,
		FirstAvailableSeq:    l.records.first,
		FileBytes:            l.tier.bytes,
		HasFile:              l.tier.file != nil,
		CanOffload:           l.offloadSize() > 0,
		RetainedBytes:        l.retainedBytes,
		RetainedEvents:       l.outputs,
		HeldBytes:            l.blocks.held + l.records.bytes() + l.batchBytes + len(l.tier.blocks)*fileEntryBytes,
		Exited:               l.exitedSeq != 0,
		Closed:               l.closedSeq != 0,
		Owned:                l.owner != nil && l.window.paced,
		Held:                 l.owner == nil && l.window.paced,
		Acknowledged:         l.window.acked.next - 1,
		UnacknowledgedBytes:  l.window.unackedBytes,
		ReservedBytes:        l.window.reservedBytes,
		UnacknowledgedEvents: l.window.unackedEvents,
		Readers:              l.observers + l.owners,
		Blocked:              len(l.writers) > 0,
	}
	if len(l.tier.blocks) > 0 {
		stats.FirstAvailableSeq = min(l.tier.blocks[0].next, l.records.first)
	}
	for i, s := range l.streams {
		if s != nil {
			stats.Totals[i] = s.total
		}
	}
	return stats
}

// Limits returns the limits of the log, with defaults applied.
func (l *Log) Limits() Limits { return l.limits }
