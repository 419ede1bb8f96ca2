package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Transport carries whole messages to and from one peer. Receive is for one
// goroutine, Send and Begin are for one other; Prove, Close and Peer are for any.
type Transport interface {
	// Receive blocks until there is a message, which is valid until the next
	// Receive. Errors are final: io.EOF after a normal close by the peer (of a
	// websocket, or of standard input), a [TooLarge] for a frame or message beyond
	// its limit, any other error for a lost connection. After a TooLarge, sending
	// works until Close.
	Receive() ([]byte, error)
	// Send sends one message and does not retain it. It may return before the message
	// is on the wire, and blocks while the bounded buffer is full.
	Send(message []byte) error
	// Begin starts a message of unknown length. It ends with Close of the
	// writer; until then nothing else may be sent. Write blocks as Send does.
	Begin() (io.WriteCloser, error)
	// Prove blocks until the peer has proved that it has read everything sent before,
	// or ctx ends. The error is [ErrCannotProve] if the transport has no such proofs.
	Prove(ctx context.Context) error
	// Close closes the connection with a websocket status code and a reason, if the
	// transport has them. It sends what is buffered for a bounded time, and returns
	// when the transport has no goroutines left and blocked calls are about to return.
	// Only the first call has an effect.
	Close(code int, reason string) error
	// Peer returns the name of the peer in error texts: "exec-server websocket
	// 127.0.0.1:4711", "exec-server stdio".
	Peer() string
}

// HalfCloser is a [Transport] whose peer may continue to read after it has closed its
// direction, like a parent process that closes the standard input of its child.
type HalfCloser interface {
	// Listens reports whether the peer may still read. It may be used concurrently and
	// does not block.
	Listens() bool
}

// Bounded is a [Transport] that sends only whole messages, up to a limit.
type Bounded interface {
	// MessageLimit returns the size in bytes of the largest message that can be sent
	// now. It may be used concurrently and does not block.
	MessageLimit() int
}

// TraceSender is a [Transport] that sends a trace context beside a message, for what passes
// messages on without parsing them.
type TraceSender interface {
	// SendTrace sets the trace context of the next message, until Send or Begin. It does
	// not block, and is for the goroutine that sends.
	SendTrace(trace Trace)
}

// TraceReceiver is a [Transport] that receives a trace context beside a message.
type TraceReceiver interface {
	// ReceivedTrace returns the trace context of the message that Receive returned last;
	// nil if there is none. It does not block, and is for the goroutine that receives.
	ReceivedTrace() *Trace
}

// ErrCannotProve is returned by Prove of a transport without proofs of what its peer
// has read.
var ErrCannotProve = errors.New("jsonrpc: the transport cannot prove what its peer has read")

// ErrClosed is returned by a transport of this package after its Close.
var ErrClosed = errors.New("jsonrpc: the transport is closed")

// TooLarge is the error of a received message beyond a limit, for errors.As.
type TooLarge interface {
	error
	// TooLarge returns what was too large ("frame", "message" or "line") and the limit
	// in bytes.
	TooLarge() (what string, limit int64)
}

// TooLargeError is the [TooLarge] of this package.
type TooLargeError struct {
	What  string // what was too large
	Limit int64  // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is longer than %d bytes: send less at once", e.What, e.Limit)
}

// TooLarge implements the interface of that name.
func (e *TooLargeError) TooLarge() (what string, limit int64) { return e.What, e.Limit }
