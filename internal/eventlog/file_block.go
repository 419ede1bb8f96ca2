package eventlog

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

const (
	// maxFileBlock is the most bytes of a block in a file: two events of MaxChunkBytes fit.
	maxFileBlock = 64 << 10
	// maxFileHeader is the most bytes of the header of a block: a time and offsets.
	maxFileHeader = streamEnd * binary.MaxVarintLen64
	// maxEventHeader is the most bytes of the header of an event in a block: stream, size and time.
	maxEventHeader = 1 + 3 + binary.MaxVarintLen64
)

// A block in a file has output events that are consecutive in seq: the time of the first
// and the offset in each stream, and then of each event the stream, the size, the time
// since the event before, and the data. Numbers are varints.

// fileBlock is the entry of a block in the index.
type fileBlock struct {
	position        // before the first event
	events   uint64 // at least 1
	bytes    uint64 // of output
	offset   int64  // in the file
	size     int64  // in the file
	// cause is why the events just before the block are missing, if they are.
	cause GapCause
}

const fileEntryBytes = int(unsafe.Sizeof(fileBlock{}))

// end returns the position after the last event.
func (b *fileBlock) end() position {
	return position{next: b.next + b.events, before: b.before + b.bytes}
}

// begin starts a block whose first event is r.
func (b *fileBlock) begin(buf []byte, seq uint64, r *record, offsets *[streamEnd]uint64) []byte {
	*b = fileBlock{position: position{next: seq, before: r.before}}
	buf = binary.AppendVarint(buf, r.time)
	for _, offset := range offsets[1:] {
		buf = binary.AppendUvarint(buf, offset)
	}
	return buf
}

// add adds the event of r, which follows that of the given time.
func (b *fileBlock) add(buf []byte, r *record, before int64) []byte {
	b.events++
	b.bytes += uint64(r.n)
	buf = append(buf, byte(r.stream))
	buf = binary.AppendUvarint(buf, uint64(r.n))
	buf = binary.AppendUvarint(buf, uint64(r.time-before))
	return append(buf, r.blk.buf[r.start:r.start+uint32(r.n)]...)
}

// fileReader reads the events of a block. Their data aliases that of the block.
type fileReader struct {
	data    []byte   // of the block
	rest    []byte   // of the events from pos on
	pos     position // before the next event
	events  uint64   // from pos on
	offsets [streamEnd]uint64
	time    int64
}

var errFileBlock = errors.New("a block in the file of an event log is damaged")

// newFileReader returns a reader of block b from the event seq on, which the block has. It
// fails if data is not that of the block.
func newFileReader(b *fileBlock, data []byte, seq uint64) (*fileReader, error) {
	r := &fileReader{data: data, rest: data, pos: b.position, events: b.events}
	time, n := binary.Varint(r.rest)
	if n <= 0 {
		return nil, errFileBlock
	}
	r.time, r.rest = time, r.rest[n:]
	for id := range r.offsets[1:] {
		offset, ok := r.number()
		if !ok {
			return nil, errFileBlock
		}
		r.offsets[1+id] = offset
	}
	from := *r
	for r.events > 0 {
		if r.pos.next == seq {
			from = *r
		}
		if _, err := r.next(); err != nil {
			return nil, err
		}
	}
	if len(r.rest) > 0 || r.pos != b.end() {
		return nil, errFileBlock
	}
	return &from, nil
}

func (r *fileReader) number() (uint64, bool) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return 0, false
	}
	r.rest = r.rest[n:]
	return v, true
}

// size returns the bytes of the next event, of which there must be one.
func (r *fileReader) size() int {
	n, _ := binary.Uvarint(r.rest[1:])
	return int(n)
}

// next returns the next event, of which there must be one.
func (r *fileReader) next() (Event, error) {
	if len(r.rest) == 0 || r.rest[0] == 0 || r.rest[0] >= streamEnd {
		return Event{}, errFileBlock
	}
	id := Stream(r.rest[0])
	r.rest = r.rest[1:]
	n, ok := r.number()
	passed, timed := r.number()
	if !ok || !timed || n == 0 || n > uint64(len(r.rest)) {
		return Event{}, errFileBlock
	}
	r.time += int64(passed)
	e := Event{Seq: r.pos.next, Kind: Output, Stream: id, Offset: r.offsets[id], UnixNano: r.time, Data: r.rest[:n:n]}
	r.rest = r.rest[n:]
	r.offsets[id] += n
	r.pos.next++
	r.pos.before += n
	r.events--
	return e, nil
}
