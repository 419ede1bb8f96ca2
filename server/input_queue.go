package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// input is a piece of a client's input.
type input struct {
	offset uint64
	data   []byte
	end    bool // closes stdin; data is empty
}

// inputQueue holds the input that was received but not yet accepted by the process:
// at most the window, without holes or repetitions. push and end are for one
// goroutine, pop, discard and accepted for one other.
type inputQueue struct {
	window uint64
	piece  int // the most bytes of one piece

	mu         sync.Mutex
	data       []byte // guarded by mu; received, and not yet in a piece
	base       uint64 // guarded by mu; accepted by the process
	next       uint64 // guarded by mu; offset after the received input
	ended      bool   // guarded by mu; the client has ended its input
	endTaken   bool   // guarded by mu; the end is in a piece
	discarding bool   // guarded by mu; the process accepts no more

	wake  notify.Signal // there is something new
	moved notify.Signal // the window has moved, or nothing more is accepted
}

func newInputQueue(window uint64, piece int) *inputQueue {
	return &inputQueue{window: window, piece: piece, wake: notify.NewSignal(), moved: notify.NewSignal()}
}

// begin sets the offset at which the client continues. It is called first.
func (q *inputQueue) begin(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base, q.next = offset, offset
}

// push adds the part of a client's message that fits into the window, and returns whether
// that is all of it. If not, push adds more of the same message after [inputQueue.moved].
// Input may be sent again, but must leave no hole; otherwise push returns an error. The
// queue owns the message's data afterwards.
func (q *inputQueue) push(m *execwirev1.RunStdin) (all bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.discarding || q.ended {
		return true, nil
	}
	offset, end := m.GetOffset(), m.GetOffset()+uint64(len(m.GetData()))
	if offset > q.next || end < offset {
		return false, newStatus(codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID,
			fmt.Sprintf("input at %d leaves a hole after %d", offset, q.next))
	}
	fits := min(end, q.base+q.window)
	if fits > q.next {
		q.add(m.GetData()[:fits-offset], q.next-offset)
		q.next = fits
	}
	q.ended = fits == end && m.GetEndOfFile()
	q.wake.Set()
	return fits == end, nil
}

// add appends the data from skip on. It copies, so that neither a small piece nor a part
// of a message keeps more memory than its own, unless the data is all there is.
func (q *inputQueue) add(data []byte, skip uint64) {
	if len(q.data) == 0 && skip == 0 {
		q.data = slices.Clip(data)
		return
	}
	q.data = append(q.data, data[skip:]...)
}

// end closes stdin after what was received.
func (q *inputQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake.Set()
}

// discard drops all current and later input: the process accepts no more.
func (q *inputQueue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.discarding, q.data = true, nil
	q.moved.Set()
}

// accepted moves the window forward. The process may have accepted more than was received
// here, from the stream before; the client continues after that.
func (q *inputQueue) accepted(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = max(q.base, offset)
	if offset > q.next {
		q.next, q.data = offset, nil
	}
	q.moved.Set()
}

// pop waits for the next piece, or returns ctx's cause.
func (q *inputQueue) pop(ctx context.Context) (input, error) {
	for {
		if piece, ok := q.take(); ok {
			return piece, nil
		}
		if err := notify.Wait(ctx, q.wake.C()); err != nil {
			return input{}, err
		}
	}
}

func (q *inputQueue) take() (input, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch n := min(len(q.data), q.piece); {
	case n > 0:
		piece := input{offset: q.next - uint64(len(q.data)), data: q.data[:n:n]}
		if q.data = q.data[n:]; len(q.data) == 0 {
			q.data = nil // the process owns the piece
		}
		return piece, true
	case q.ended && !q.endTaken && !q.discarding:
		q.endTaken = true
		return input{offset: q.next, end: true}, true
	}
	return input{}, false
}
