package eventlog

import (
	"bytes"
	"slices"
)

// Tail returns a copy of the last bytes of a stream, at most n of those that [Log.Snapshot]
// has without a gap between them, whether or not the events are still retained.
func (l *Log) Tail(id Stream, n int) []byte {
	v := l.view(id)
	parts := v.tail
	if v.omitted == 0 {
		parts = slices.Concat(v.head, v.tail)
	}
	skip := -n
	for _, part := range parts {
		skip += len(part)
	}
	for skip > 0 && skip >= len(parts[0]) {
		skip -= len(parts[0])
		parts = parts[1:]
	}
	if skip > 0 {
		parts[0] = parts[0][skip:]
	}
	return bytes.Join(parts, nil)
}
