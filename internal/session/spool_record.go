package session

import (
	"encoding/binary"

	"github.com/execwire/execwire/internal/eventlog"
)

// recordHeader is the size of a record in a spool without its data: kind,
// stream, whether a gap is inexact, one byte of nothing, the number of bytes of
// data (4), seq (8), offset (8). A gap has kind 0, FirstAvailableSeq for its seq
// and DroppedBytes for its offset.
const recordHeader = 24

// appendBatch encodes what one batch says.
func appendBatch(b []byte, batch eventlog.Batch) []byte {
	if g := batch.Gap; g != nil {
		inexact := byte(0)
		if g.Inexact {
			inexact = 1
		}
		b = append(b, 0, 0, inexact, 0)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, g.FirstAvailableSeq)
		b = binary.LittleEndian.AppendUint64(b, g.DroppedBytes)
	}
	for _, e := range batch.Events {
		b = append(b, byte(e.Kind), byte(e.Stream), 0, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
		b = binary.LittleEndian.AppendUint64(b, e.Seq)
		b = binary.LittleEndian.AppendUint64(b, e.Offset)
		b = append(b, e.Data...)
	}
	return b
}

// record is one decoded record: a gap or an event.
type record struct {
	gap   *eventlog.Gap
	event eventlog.Event
	size  int // encoded
}

// decodeRecord decodes the record that b begins with. The event's data is a part
// of b. It reports false if b has less than a record.
func decodeRecord(b []byte) (record, bool) {
	if len(b) < recordHeader {
		return record{}, false
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	seq, offset := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if b[0] == 0 {
		return record{size: recordHeader, gap: &eventlog.Gap{FirstAvailableSeq: seq, DroppedBytes: offset, Inexact: b[2] != 0}}, true
	}
	if len(b)-recordHeader < n {
		return record{}, false
	}
	r := record{size: recordHeader + n, event: eventlog.Event{Seq: seq, Kind: eventlog.Kind(b[0])}}
	if r.event.Kind == eventlog.Output {
		r.event.Stream, r.event.Offset = eventlog.Stream(b[1]), offset
		r.event.Data = b[recordHeader:r.size:r.size]
	}
	return r, true
}
