package eventlog

import "unsafe"

// record is the compact form of a retained event; its seq is its position.
type record struct {
	blk    *block // nil for Exited and Closed
	offset uint64 // in its stream
	before uint64 // output bytes of all streams before this event
	time   int64  // of Output: when it was read, Unix time in ns
	start  uint32 // of the data in blk
	n      uint16 // bytes of data, at most MaxChunkBytes
	kind   Kind
	stream Stream
}

const (
	segmentLen  = 64
	recordBytes = int(unsafe.Sizeof(record{}))
	eventBytes  = int(unsafe.Sizeof(Event{}))
)

type segment [segmentLen]record

// deque holds the records of the seqs [first, end). It grows and shrinks by
// segments, so that memory returns after a flood of small events, and keeps one
// spare segment so that a steady flow allocates nothing.
type deque struct {
	segs  []*segment
	skip  int // evicted records of segs[0]
	first uint64
	end   uint64
	spare *segment
}

func (d *deque) len() int { return int(d.end - d.first) }

// at returns the record of seq, which must be in [first, end). The pointer is
// valid until the next push or pop.
func (d *deque) at(seq uint64) *record {
	i := d.skip + int(seq-d.first)
	return &d.segs[i/segmentLen][i%segmentLen]
}

func (d *deque) push(r record) {
	i := d.skip + d.len()
	if i/segmentLen == len(d.segs) {
		d.segs = append(d.segs, d.newSegment())
	}
	d.segs[i/segmentLen][i%segmentLen] = r
	d.end++
}

// pop removes the first record.
func (d *deque) pop() record {
	slot := &d.segs[0][d.skip]
	r := *slot
	*slot = record{}
	d.first++
	d.skip++
	if d.skip == segmentLen || d.len() == 0 {
		d.dropFirstSegment()
	}
	return r
}

func (d *deque) newSegment() *segment {
	if s := d.spare; s != nil {
		d.spare = nil
		return s
	}
	return new(segment)
}

// dropFirstSegment is called when all its records are zeroed.
func (d *deque) dropFirstSegment() {
	if d.spare == nil {
		d.spare = d.segs[0]
	}
	d.segs[0] = nil
	d.segs = d.segs[1:]
	d.skip = 0
}

// bytes is the memory of the segments.
func (d *deque) bytes() int {
	n := len(d.segs)
	if d.spare != nil {
		n++
	}
	return n * segmentLen * recordBytes
}

// share returns the event, whose Data stays valid for as long as it is referenced.
func (r *record) share(seq uint64) Event {
	if r.blk != nil {
		r.blk.shared = true
	}
	return r.event(seq)
}

// event returns the event, whose Data is valid for as long as its block is not freed.
func (r *record) event(seq uint64) Event {
	e := Event{Seq: seq, Kind: r.kind, Stream: r.stream, Offset: r.offset, UnixNano: r.time}
	if r.kind == Output {
		e.Data = r.blk.buf[r.start : r.start+uint32(r.n) : r.start+uint32(r.n)]
	}
	return e
}
