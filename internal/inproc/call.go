package inproc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Causes found with context.Cause in a handler's context once it is cancelled.
// Each is also a context.Canceled to errors.Is, so that a handler may return
// its cause. A deadline's cause is context.DeadlineExceeded.
var (
	// ErrCallerGone means that the caller cancelled or gave up the call; it
	// wraps the caller's own cause.
	ErrCallerGone error = &cancelled{"inproc: the caller has gone"}
	// ErrHandlerReturned means that the handler itself has returned.
	ErrHandlerReturned error = &cancelled{"inproc: the handler has returned"}
	// ErrClosed means that the channel was closed.
	ErrClosed error = &cancelled{"inproc: the channel is closed"}
)

type cancelled struct{ text string }

func (e *cancelled) Error() string        { return e.text }
func (e *cancelled) Is(target error) bool { return target == context.Canceled }

// Unavailable, as from a server that has stopped.
var errUnavailable = status.Error(codes.Unavailable, "inproc: the channel is closed")

// call is what the two ends of one call share: a queue in each direction, the
// header, and the end. It ends once, through endByHandler or endByClient;
// everything that waits, waits for a queue or for done.
type call struct {
	requests   chan proto.Message
	responses  chan proto.Message
	halfClosed chan struct{} // closed by the client when it has sent everything
	settled    chan struct{} // closed when the header is sent or never will be
	done       chan struct{} // closed when the call ends

	cancel     context.CancelCauseFunc // of the handler's context; set before the call is shared
	handedBack bool                    // the caller promised so; set before the call is shared
	lent       []byte                  // by the caller, for the answer; set before the call is shared

	// Written before done is closed, and only read after.
	status    *status.Status // what the client learns
	serverErr error          // what the handler's SendMsg and RecvMsg return

	mu         sync.Mutex // guards what follows
	header     metadata.MD
	trailer    metadata.MD
	headerSent bool
	ended      bool
}

func newCall(requests, responses int) *call {
	return &call{
		requests:   make(chan proto.Message, requests),
		responses:  make(chan proto.Message, responses),
		halfClosed: make(chan struct{}),
		settled:    make(chan struct{}),
		done:       make(chan struct{}),
	}
}

// endByHandler ends the call with the status that the server's side gives it,
// and cancels the handler's context with cause. If the call has ended it only
// does the latter.
func (c *call) endByHandler(st *status.Status, cause error) {
	c.mu.Lock()
	if !c.ended {
		if !c.headerSent && len(c.header) > 0 {
			c.sendHeaderLocked()
		}
		c.endLocked(st, codes.Canceled)
	}
	c.mu.Unlock()
	c.cancel(cause)
}

// endByClient ends the call from the client's side, which then sees neither
// the trailer nor a header that was not sent, and cancels the handler's context
// with cause. Without a cause that is left to the context's own deadline, so
// that the handler sees DeadlineExceeded whichever timer fires first. It does
// nothing if the call has ended.
func (c *call) endByClient(st *status.Status, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.trailer = nil
	if cause == nil {
		c.endLocked(st, codes.DeadlineExceeded)
		return
	}
	c.endLocked(st, codes.Canceled)
	c.cancel(cause)
}

func (c *call) endLocked(st *status.Status, serverCode codes.Code) {
	c.ended = true
	c.status = st
	c.serverErr = status.FromContextError(contextError(serverCode)).Err()
	if !c.headerSent {
		c.header = nil
		close(c.settled)
	}
	close(c.done)
}

func contextError(code codes.Code) error {
	if code == codes.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

var errEnded = errors.New("the call has ended")

// sendRequest queues m for the handler; it waits while the queue is full.
func (c *call) sendRequest(m proto.Message) error {
	return c.send(c.requests, m)
}

// sendResponse queues m for the client; it waits while the queue is full.
func (c *call) sendResponse(m proto.Message) error {
	if err := c.flushHeader(); err != nil {
		return err
	}
	if c.send(c.responses, m) != nil {
		return c.serverErr
	}
	return nil
}

func (c *call) send(queue chan<- proto.Message, m proto.Message) error {
	select {
	case <-c.done: // first, so that it always wins over room in the queue
		return errEnded
	default:
	}
	select {
	case queue <- m:
		return nil
	case <-c.done:
		return errEnded
	}
}

// nextRequest waits for a message of the client, io.EOF after its last, or the
// end of the call, which makes what is still queued worthless.
func (c *call) nextRequest() (proto.Message, error) {
	select {
	case <-c.done:
		return nil, c.serverErr
	default:
	}
	select {
	case m := <-c.requests:
		return m, nil
	case <-c.done:
		return nil, c.serverErr
	case <-c.halfClosed:
	}
	select {
	case m := <-c.requests:
		return m, nil
	default:
		return nil, io.EOF
	}
}

// nextResponse waits for a message of the handler. The end of the call comes
// after everything that is queued: io.EOF if it ended well.
func (c *call) nextResponse() (proto.Message, error) {
	select {
	case m := <-c.responses:
		return m, nil
	case <-c.done:
	}
	select {
	case m := <-c.responses:
		return m, nil
	default:
	}
	if err := c.status.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
