package call

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// StreamBase64 writes a JSON object: begin, then as its last member the base64 of what
// next returns until that is empty. A piece is not used after the following call of
// next. The text is buffered, because for some clients the cost of a write grows with
// the number of writes before.
func StreamBase64(w io.Writer, begin string, next func() ([]byte, error)) error {
	gathered, put := getWriteBuffer()
	defer put()
	gathered = append(append(gathered, begin...), '"')
	capacity := cap(gathered)
	var left []byte
	for {
		piece, err := next()
		if err != nil {
			return err
		}
		if len(piece) == 0 {
			break
		}
		if len(left) > 0 {
			piece = append(left, piece...)
		}
		whole := len(piece) - len(piece)%3
		left = slices.Clone(piece[whole:])
		if len(gathered)+whole/3*4 > capacity {
			if _, err := w.Write(gathered); err != nil {
				return err
			}
			gathered = gathered[:0]
		}
		gathered = jsonrpc.AppendBase64Text(gathered, piece[:whole])
	}
	_, err := w.Write(append(jsonrpc.AppendBase64Text(gathered, left), `"}`...))
	return err
}

// MaxPooledBuffer is the largest buffer for messages that is reused.
const MaxPooledBuffer = 256 << 10

// MaxWholeData is the size of the largest data whose text fits into a pooled buffer.
const MaxWholeData = MaxPooledBuffer / 4 * 3

// Data returns a result that is a JSON object: begin, and as its last member the base64
// of the pieces. Large data is streamed. done is called when it was sent.
func Data(begin string, done func(), pieces ...[]byte) any {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	d := data{begin: begin, pieces: pieces, done: done}
	if size > MaxWholeData {
		return &largeData{d}
	}
	return &wholeData{d}
}

type data struct {
	begin  string
	pieces [][]byte
	done   func()
}

type wholeData struct{ data }

func (d *wholeData) AppendTo(dst []byte) []byte {
	var whole []byte
	if len(d.pieces) == 1 {
		whole = d.pieces[0]
	} else {
		whole = bytes.Join(d.pieces, nil)
	}
	return append(jsonrpc.AppendBase64(append(dst, d.begin...), whole), '}')
}

func (d *wholeData) Sent() { d.done() }

type largeData struct{ data }

func (d *largeData) StreamTo(w io.Writer) error {
	defer d.done()
	return StreamBase64(w, d.begin, d.next)
}

// next returns the next piece; empty at the end.
func (d *largeData) next() (piece []byte, err error) {
	for len(piece) == 0 && len(d.pieces) > 0 {
		first := d.pieces[0]
		piece = first[:min(len(first), MaxWholeData)]
		if d.pieces[0] = first[len(piece):]; len(piece) == len(first) {
			d.pieces = d.pieces[1:]
		}
	}
	return piece, nil
}

const (
	// writeBufferBytes is the size of a buffer for a large file, and of its writes. Four times
	// as much does not stay in the processor's cache: a file then takes a fifth longer.
	writeBufferBytes = 1 << 20
	// maxWriteBuffers bounds the buffers of this size, across connections: a client
	// that does not read keeps its buffer.
	maxWriteBuffers = 8
	// smallWriteBufferBytes is the size of a buffer beyond them.
	smallWriteBufferBytes = 256 << 10
)

// writeBuffersInUse has an element for each large buffer in use; writeBuffers has free
// ones.
var (
	writeBuffersInUse = make(chan struct{}, maxWriteBuffers)
	writeBuffers      = sync.Pool{New: func() any { return new([writeBufferBytes]byte) }}
)

// getWriteBuffer returns an empty buffer; its capacity is the size to fill. The caller
// must not use it after put.
func getWriteBuffer() (buffer []byte, put func()) {
	select {
	case writeBuffersInUse <- struct{}{}:
		large := writeBuffers.Get().(*[writeBufferBytes]byte)
		return large[:0], func() {
			writeBuffers.Put(large)
			<-writeBuffersInUse
		}
	default:
		return make([]byte, 0, smallWriteBufferBytes), func() {}
	}
}
