package inproc

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Causes, by context.Cause, of a handler's canceled context. Each also is a
// context.Canceled to errors.Is, so that a handler may return it. The cause of a
// deadline is context.DeadlineExceeded.
var (
	// ErrCallerGone means that the caller canceled or abandoned the call; it
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

// the status of a stopped server
var errUnavailable = status.Error(codes.Unavailable, "inproc: the channel is closed")

// call is the state that both ends of a call share: a queue in each direction and
// the end. It ends once, by endByHandler or endByClient; all
// waiting is for a queue or for done.
type call struct {
	requests   chan proto.Message
	responses  chan proto.Message
	halfClosed chan struct{} // closed by the client when it has sent everything
	done       chan struct{} // closed when the call ends

	cancel     context.CancelCauseFunc // of the handler's context; set before the call is shared
	handedBack bool                    // the caller promised to hand messages back; set before the call is shared
	// acknowledged is whether the caller promised to hand back what it acknowledges; set before the call is shared.
	acknowledged bool
	lent         []byte         // by the caller, for the response; set before the call is shared
	takeFile     func(*os.File) // of the caller; nil if it takes none; set before the call is shared

	// Written before done is closed, and only read after.
	status    *status.Status // for the client
	serverErr error          // result of the handler's SendMsg and RecvMsg

	sending chan struct{}       // has an element while the handler sends; nil: it sends once
	take    func(proto.Message) // takes what the handler sends; nil: the queue does; guarded by sending

	headerSent atomic.Bool // the client has the header, or may have it; set under mu

	mu         sync.Mutex
	ended      bool          // guarded by mu
	header     metadata.MD   // of the response; immutable once headerSent is set; guarded by mu
	headerWait chan struct{} // closed when the header is sent; nil while no client waits; guarded by mu
	trailer    metadata.MD   // of the response; guarded by mu
}

func newCall(requests, responses int) *call {
	return &call{
		requests:   make(chan proto.Message, requests),
		responses:  make(chan proto.Message, responses),
		halfClosed: make(chan struct{}),
		done:       make(chan struct{}),
	}
}

// endByHandler ends the call with the server's status, and cancels the handler's
// context with cause. If the call has already ended it only cancels.
func (c *call) endByHandler(st *status.Status, cause error) {
	c.mu.Lock()
	if !c.ended {
		if len(c.header) > 0 { // otherwise the response has only trailers, as with grpc-go
			c.sendHeaderLocked()
		}
		c.endLocked(st, context.Canceled)
	}
	c.mu.Unlock()
	c.cancel(cause)
}

// endByClient ends the call from the client's side, and cancels the handler's
// context with cause. Without a cause that is left to the context's own deadline,
// so that the handler sees DeadlineExceeded whichever timer fires first. It does
// nothing if the call has ended.
func (c *call) endByClient(st *status.Status, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.trailer = nil // it was not sent
	if cause == nil {
		c.endLocked(st, context.DeadlineExceeded)
		return
	}
	c.endLocked(st, context.Canceled)
	c.cancel(cause)
}

func (c *call) endLocked(st *status.Status, handlerErr error) {
	c.ended = true
	c.status = st
	c.serverErr = status.FromContextError(handlerErr).Err()
	close(c.done)
}

// send queues m and reports whether the call has not ended. It blocks while the
// queue is full.
func (c *call) send(queue chan<- proto.Message, m proto.Message) bool {
	select {
	case <-c.done: // checked first, so that it takes precedence over queue space
		return false
	default:
	}
	select {
	case queue <- m:
		return true
	case <-c.done:
		return false
	}
}

// nextRequest blocks for a message of the client, io.EOF after its last, or the
// end of the call, which discards queued messages.
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

// nextResponse blocks for a message of the handler. Queued messages are returned
// before the end of the call, which is io.EOF for status OK.
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
