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
	// MaxReaders is the most observers at once, and separately the most replaced
	// owners that were not released. Default 64.
	MaxReaders int
	// Held makes the log start as if an owner had been released with hold: nothing is
	// evicted until Own or Free.
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

// WithDefaults returns the limits with defaults and minimums applied.
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

// chunkBytes is the most data of one event. No event is so large that retention could
// keep only one.
func (l Limits) chunkBytes() int { return min(MaxChunkBytes, l.RetainedBytes/4) }

// largestBlock keeps partly used blocks small compared to the retained output.
func (l Limits) largestBlock() int {
	return min(maxBlockBytes, max(minBlockBytes, l.RetainedBytes/8))
}

// minSpace is the least space for which a writer gets a buffer: a window that opens
// byte by byte must not cause a system call for each.
func (l Limits) minSpace() int { return min(minFreeBytes, l.WindowBytes/4) }

// bufferBytes is the most that a writer commits at once.
func (l Limits) bufferBytes() int {
	return min(maxBlockBytes, 2*l.chunkBytes(), l.WindowBytes/4)
}

// fileBlockBytes is the size of a block in a file, unless it has only one event.
func (l Limits) fileBlockBytes() int { return min(maxFileBlock, max(l.RetainedBytes/4, maxFileHeader)) }
