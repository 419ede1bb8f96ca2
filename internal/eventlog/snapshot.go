package eventlog

import "bytes"

// StreamSnapshot is the beginning and the end of one stream. Head and Tail do
// not overlap; they are contiguous when Omitted is 0.
type StreamSnapshot struct {
	Head    []byte // the first bytes, at most Limits.SnapshotBytes
	Tail    []byte // the last bytes after Head, at most Limits.SnapshotBytes
	Omitted uint64 // bytes between Head and Tail
	Total   uint64 // bytes of the stream, ever
}

// Snapshot returns copies of the beginning and the end of a stream, whether or not the
// events are still retained. It reads the file of an offloaded log: if that fails, or is not
// there any more, Head and Tail are empty.
func (l *Log) Snapshot(id Stream) StreamSnapshot {
	v := l.view(id)
	return StreamSnapshot{Head: bytes.Join(v.head, nil), Tail: bytes.Join(v.tail, nil), Omitted: v.omitted, Total: v.total}
}

// view refers to the data that a snapshot copies. Committed data does not change, so
// that copying needs no lock and delays no writer.
type view struct {
	head, tail     [][]byte
	omitted, total uint64
}

// view returns the view of a stream, empty if it has no output.
func (l *Log) view(id Stream) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[id]; s != nil {
		return l.tier.loaded(s).view(l.limits.SnapshotBytes)
	}
	return view{}
}

func (s *stream) view(snapshot int) view {
	v := view{total: s.total}
	for _, p := range s.head {
		v.head = append(v.head, p.share())
	}
	afterHead := s.total - uint64(s.headBytes)
	tail := min(uint64(snapshot), afterHead, uint64(s.tailBytes))
	v.omitted = afterHead - tail
	skip := s.tailBytes - int(tail)
	for _, p := range s.tail {
		n := min(skip, p.len())
		skip -= n
		if n < p.len() {
			v.tail = append(v.tail, p.share()[n:])
		}
	}
	return v
}
