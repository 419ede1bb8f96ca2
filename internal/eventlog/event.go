package eventlog

import (
	"errors"
	"fmt"
)

// MaxChunkBytes is the most Data of one event. Its message, also with a process id as
// long as a UUID, still fits the 32 KiB tier of gRPC's buffer pool; 32,768 bytes would
// not, and would cost twice the CPU. The contract allows up to 32,700.
const MaxChunkBytes = 32685

// Stream is a stream of output. The zero value is no stream.
type Stream uint8

// The streams of a process: a process has either a terminal or the other two.
const (
	Stdout   Stream = 1
	Stderr   Stream = 2
	Terminal Stream = 3

	streamEnd = 4 // arrays indexed by Stream have this length
)

// String returns the stream's name in lower case.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Terminal:
		return "terminal"
	}
	return fmt.Sprintf("stream(%d)", uint8(s))
}

// Kind is the kind of an event. The zero value is no kind.
type Kind uint8

// The kinds of events. Exited happens once and precedes Closed; output may come
// between them, from descendants that hold a stream open. Closed is the last
// event of a log.
const (
	Output Kind = 1
	Exited Kind = 2
	Closed Kind = 3
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Output:
		return "output"
	case Exited:
		return "exited"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is one entry of a log.
type Event struct {
	Seq    uint64 // from 1, without gaps
	Kind   Kind
	Stream Stream // of Output only
	Offset uint64 // of Output only: offset of Data[0] in its stream
	// UnixNano is the time of Output, from its Commit, in ns since 1970. It never
	// decreases from one Output to the next, over all streams.
	UnixNano int64
	// Data is set for Output only, and never empty there. It aliases a block of
	// the log: it must not be written to and stays valid for as long as it is
	// referenced, unless the cursor borrows it: see [Reader.Borrow] and
	// [Owner.BorrowUntilAcknowledged].
	Data []byte
}

// Gap reports to a cursor that events it has not read were evicted.
type Gap struct {
	// FirstAvailableSeq is the seq of the event that follows the gap.
	FirstAvailableSeq uint64
	// DroppedBytes is the number of output bytes, over all streams, between the
	// cursor and FirstAvailableSeq.
	DroppedBytes uint64
	// Inexact is set when DroppedBytes is an upper bound: the cursor was opened
	// at a seq that was evicted before, other than 0 and the acknowledged one,
	// and the log no longer knows how many bytes preceded it.
	Inexact bool
	// Cause is why the last of the missing events are missing.
	Cause GapCause
}

// GapCause is why output is missing.
type GapCause uint8

// The causes of gaps.
const (
	// Evicted is that of output beyond the limits of the log, in memory and in its file.
	Evicted GapCause = iota
	// FilesFull is that of output beyond the limits of all files: their bytes and their number.
	FilesFull
	// DiskFull is that of output for which the file system had no space.
	DiskFull
	// WriteFailed is that of output that could not be written to the file.
	WriteFailed
	// ReadFailed is that of output that could not be read from the file.
	ReadFailed
)

// Batch is the result of one Next: the gap, if any, precedes the events.
type Batch struct {
	Gap *Gap // nil: nothing is missing
	// Events are consecutive in seq. The slice is valid until the cursor's next
	// Next, TryNext or Close; the Data of its events for longer, unless it is borrowed.
	Events []Event
}

var (
	// ErrTooManyReaders is returned when Limits.MaxReaders cursors are open.
	ErrTooManyReaders = errors.New("too many readers of one event log; close one first")
	// ErrFutureSeq is returned for a seq that no event has yet.
	ErrFutureSeq = errors.New("seq is beyond the last event")
	// ErrReplaced is returned to an owner after another one took over.
	ErrReplaced = errors.New("ownership of the event log was taken over")
	// ErrClosed is returned by a cursor after its Close or Release.
	ErrClosed = errors.New("event log cursor is closed")
)

func errFuture(seq, last uint64) error {
	return fmt.Errorf("%w: %d, the last is %d", ErrFutureSeq, seq, last)
}
