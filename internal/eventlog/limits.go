package eventlog

// Limits bound one log. Zero fields take the defaults; values below the stated
// minimum are raised to it.
type Limits struct {
	// RetainedBytes is the most output kept over all streams, in bytes.
	// Default 1 MiB, minimum 256.
	RetainedBytes int
	// RetainedEvents is the most output events kept. Default 50,000, minimum 8.
	RetainedEvents int
	// WindowBytes is the most output that an owner may leave unacknowledged,
	// delivered or not. Default and maximum RetainedBytes, minimum 16.
	WindowBytes int
	// SnapshotBytes is the size of the head and of the tail that Snapshot
	// returns, each, per stream. Default 64 KiB, minimum 1.
	SnapshotBytes int
	// MaxReaders is the most observers at once, and apart from them the most
	// owners that were replaced and have not noticed yet. Default 64.
	MaxReaders int
	// Held has the log begin as if an owner had been released with hold: nothing
	// is evicted until Own or Free.
	Held bool
}

const (
	firstBlockBytes = 4 << 10  // of a stream's first block; grows fourfold
	maxBlockBytes   = 64 << 10 // two chunks of MaxChunkBytes in one read(2)
	minBlockBytes   = 64
	minFreeBytes    = 4 << 10 // with less free (or 1/8) a block is full

	maxBatchBytes  = 64 << 10
	maxBatchEvents = 256
	batchBlocks    = 3 // a batch pins at most this many of the largest blocks
)

// WithDefaults returns the limits that a log really works with.
func (l Limits) WithDefaults() Limits {
	l.RetainedBytes = orDefault(l.RetainedBytes, 1<<20, 256)
	l.RetainedEvents = orDefault(l.RetainedEvents, 50_000, 8)
	l.WindowBytes = min(orDefault(l.WindowBytes, l.RetainedBytes, 16), l.RetainedBytes)
	l.SnapshotBytes = orDefault(l.SnapshotBytes, 64<<10, 1)
	l.MaxReaders = orDefault(l.MaxReaders, 64, 1)
	return l
}

func orDefault(v, def, least int) int {
	if v == 0 {
		return def
	}
	return max(v, least)
}

// chunkBytes is the most data of one event: an event is never so large that
// retention could keep only one.
func (l Limits) chunkBytes() int { return min(MaxChunkBytes, l.RetainedBytes/4) }

// largestBlock keeps the partly used blocks small beside what is retained.
func (l Limits) largestBlock() int {
	return min(maxBlockBytes, max(minBlockBytes, l.RetainedBytes/8))
}

// minRoom is the least room for which a writer is given a buffer: a window that
// opens byte by byte must not cause a system call for each.
func (l Limits) minRoom() int { return min(minFreeBytes, l.WindowBytes/4) }

// MaxHeldBytes is the upper bound of Stats.HeldBytes for a process that writes
// to the given number of streams, with the given number of cursors that have a
// batch in their hands (replaced owners count until they notice). It is
//
//	8/7 · (RetainedBytes + 2 · streams · SnapshotBytes)   a block is full at 7/8
//	+ 4 · streams · block                                 begun or partly evicted blocks
//	+ 3 · block + 12 KiB per cursor                       its last batch
//	+ 32 bytes per event, in segments of 2 KiB
//
// with block = RetainedBytes/8, at most 64 KiB. With the defaults, two streams,
// an owner and one observer that is 4 MiB, of which 1.6 MiB only for a flood of
// tiny events. What Log.Append adds while the log is owned or held comes on top.
func (l Limits) MaxHeldBytes(streams, cursors int) int {
	l = l.WithDefaults()
	block := l.largestBlock()
	data := (l.RetainedBytes + 2*streams*l.SnapshotBytes) * 8 / 7
	data += 4 * streams * block
	pinned := cursors * (batchBlocks*block + maxBatchEvents*eventBytes)
	// A read that was under way when an owner arrived may add two events per
	// stream; the two ends of the deque and its spare are partly empty segments.
	records := (l.RetainedEvents + 2*streams + 2 + 3*segmentLen) * recordBytes
	return data + pinned + records
}
