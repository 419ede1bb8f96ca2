package eventlog

import "bytes"

// Snapshot is the beginning and the end of each stream that has output.
type Snapshot struct {
	Streams []StreamSnapshot // one per stream, by number
}

// StreamSnapshot is the beginning and the end of one stream. Head and Tail do
// not overlap; they are contiguous when Omitted is 0.
type StreamSnapshot struct {
	Stream  Stream // the stream
	Head    []byte // the first bytes, at most Limits.SnapshotBytes
	Tail    []byte // the last bytes after Head, at most Limits.SnapshotBytes
	Omitted uint64 // bytes between Head and Tail
	Total   uint64 // bytes of the stream, ever
}

// Stream returns the snapshot of one stream, empty if it has no output.
func (s Snapshot) Stream(id Stream) StreamSnapshot {
	for _, one := range s.Streams {
		if one.Stream == id {
			return one
		}
	}
	return StreamSnapshot{Stream: id}
}

// Snapshot returns copies of the beginning and the end of each stream, whether
// or not the events are still retained.
func (l *Log) Snapshot() Snapshot {
	var snapshot Snapshot
	for _, v := range l.views() {
		snapshot.Streams = append(snapshot.Streams, StreamSnapshot{
			Stream:  v.id,
			Head:    bytes.Join(v.head, nil),
			Tail:    bytes.Join(v.tail, nil),
			Omitted: v.omitted,
			Total:   v.total,
		})
	}
	return snapshot
}

// view refers to the data that a snapshot copies. Committed data does not change, so
// that copying needs no lock and delays no writer.
type view struct {
	id             Stream
	head, tail     [][]byte
	omitted, total uint64
}

func (l *Log) views() []view {
	l.mu.Lock()
	defer l.mu.Unlock()
	var views []view
	for _, s := range l.streams {
		if s != nil && s.total > 0 {
			views = append(views, s.view(l.limits.SnapshotBytes))
		}
	}
	return views
}

func (s *stream) view(snapshot int) view {
	v := view{id: s.id, total: s.total}
	for _, p := range s.head {
		v.head = append(v.head, p.bytes())
	}
	afterHead := s.total - uint64(s.headBytes)
	tail := min(uint64(snapshot), afterHead)
	v.omitted = afterHead - tail
	skip := s.tailBytes - int(tail)
	for _, p := range s.tail {
		n := min(skip, p.len())
		skip -= n
		if n < p.len() {
			v.tail = append(v.tail, p.bytes()[n:])
		}
	}
	return v
}
