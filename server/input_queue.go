package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// smallInput is the size up to which pieces of input are put together, so that
// a client that types or sends bytes one by one costs what they weigh.
const smallInput = 4 << 10

// input is a piece of a client's input.
type input struct {
	offset uint64
	data   []byte
	end    bool // closes stdin after data
}

// inputQueue holds the input that was received and not yet accepted by the
// process: at most the window that the client was told, without holes or
// repetition. push and end are for one goroutine, pop and what follows it for
// one other.
type inputQueue struct {
	window uint64

	mu      sync.Mutex
	pieces  []input // guarded by mu; adjacent
	base    uint64  // guarded by mu; accepted by the process
	next    uint64  // guarded by mu; where the client goes on
	ended   bool    // guarded by mu; no more comes
	refused bool    // guarded by mu; the process takes no more

	wake chan struct{} // holds one token when there is something new
}

func newInputQueue(window int) *inputQueue {
	return &inputQueue{window: uint64(window), wake: make(chan struct{}, 1)}
}

// begin sets where the client goes on. It comes before everything else.
func (q *inputQueue) begin(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base, q.next = offset, offset
}

// push takes a message of the client, or says how it breaks the rules: input
// may be sent again, but must leave no hole and not exceed the window. The
// queue owns the message's data afterwards.
func (q *inputQueue) push(m *execwirev1.RunStdin) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused || q.ended {
		return nil
	}
	offset, end := m.GetOffset(), m.GetOffset()+uint64(len(m.GetData()))
	switch {
	case offset > q.next:
		return invalidOffset(fmt.Sprintf("input at %d leaves a hole after %d", offset, q.next))
	case end < offset || end > q.base+q.window:
		return invalidOffset(fmt.Sprintf("input up to %d exceeds the window of %d bytes after the %d that were accepted", end, q.window, q.base))
	}
	if end > q.next {
		q.add(piece(m.GetData(), q.next-offset))
		q.next = end
	}
	if m.GetEndOfFile() {
		q.close()
	}
	q.notify()
	return nil
}

func invalidOffset(text string) error {
	return failure(codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID, nil, text)
}

// add appends input at next. mu is held.
func (q *inputQueue) add(data []byte) {
	if last := len(q.pieces) - 1; last >= 0 && len(q.pieces[last].data)+len(data) <= smallInput {
		q.pieces[last].data = append(q.pieces[last].data, data...)
		return
	}
	q.pieces = append(q.pieces, input{offset: q.next, data: data})
}

// end closes stdin after what was received.
func (q *inputQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended && !q.refused {
		q.close()
		q.notify()
	}
}

// close adds the end of the input. mu is held.
func (q *inputQueue) close() {
	q.pieces = append(q.pieces, input{offset: q.next, end: true})
	q.ended = true
}

// refuse drops everything, now and later: the process takes no more input.
func (q *inputQueue) refuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused, q.pieces = true, nil
}

// accepted moves the window.
func (q *inputQueue) accepted(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = max(q.base, offset)
}

func (q *inputQueue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop waits for the next piece, or returns ctx's cause.
func (q *inputQueue) pop(ctx context.Context) (input, error) {
	for {
		if piece, ok := q.take(); ok {
			return piece, nil
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return input{}, context.Cause(ctx)
		}
	}
}

func (q *inputQueue) take() (input, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pieces) == 0 {
		return input{}, false
	}
	piece := q.pieces[0]
	q.pieces[0] = input{}
	q.pieces = q.pieces[1:]
	return piece, true
}

// piece is the data from skip on. It has no room behind it, which may be its
// sender's, and keeps nothing in memory before it.
func piece(data []byte, skip uint64) []byte {
	if skip > 0 {
		return bytes.Clone(data[skip:])
	}
	return slices.Clip(data)
}
