package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// smallInput is the size up to which pieces of input are joined, so that a client
// that sends single bytes does not use up memory.
const smallInput = 4 << 10

// input is a piece of a client's input.
type input struct {
	offset uint64
	data   []byte
	end    bool // closes stdin after data
}

// inputQueue holds the input that was received but not yet accepted by the process:
// at most the window, without holes or repetitions. push and end are for one
// goroutine, pop, discard and accepted for one other.
type inputQueue struct {
	window uint64

	mu         sync.Mutex
	pieces     []input // guarded by mu; adjacent
	base       uint64  // guarded by mu; accepted by the process
	next       uint64  // guarded by mu; offset after the received input
	ended      bool    // guarded by mu; the client has ended its input
	discarding bool    // guarded by mu; the process accepts no more

	wake notify.Signal // there is something new
}

func newInputQueue(window uint64) *inputQueue {
	return &inputQueue{window: window, wake: notify.NewSignal()}
}

// begin sets the offset at which the client continues. It is called first.
func (q *inputQueue) begin(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base, q.next = offset, offset
}

// push adds a message of the client. Input may be sent again, but must leave no hole
// and not exceed the window; otherwise push returns an error. The queue owns the
// message's data afterwards.
func (q *inputQueue) push(m *execwirev1.RunStdin) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.discarding || q.ended {
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
		q.add(copyFrom(m.GetData(), q.next-offset))
		q.next = end
	}
	if m.GetEndOfFile() {
		q.close()
	}
	q.wake.Set()
	return nil
}

func invalidOffset(text string) error {
	return newStatus(codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID, text)
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
	if !q.ended && !q.discarding {
		q.close()
		q.wake.Set()
	}
}

// close adds the end of the input. mu is held.
func (q *inputQueue) close() {
	q.pieces = append(q.pieces, input{offset: q.next, end: true})
	q.ended = true
}

// discard drops all current and later input: the process accepts no more.
func (q *inputQueue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.discarding, q.pieces = true, nil
}

// accepted moves the window forward.
func (q *inputQueue) accepted(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = max(q.base, offset)
}

// pop waits for the next piece, or returns ctx's cause.
func (q *inputQueue) pop(ctx context.Context) (input, error) {
	for {
		if piece, ok := q.take(); ok {
			return piece, nil
		}
		select {
		case <-q.wake.C():
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

// copyFrom copies the data from skip on, so that neither spare capacity nor skipped
// data is retained.
func copyFrom(data []byte, skip uint64) []byte {
	if skip > 0 {
		return bytes.Clone(data[skip:])
	}
	return slices.Clip(data)
}
