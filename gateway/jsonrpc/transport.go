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
	// Receive. Its errors are final: io.EOF when the peer ended the conversation
	// as agreed (a normal close of a websocket, the end of standard input), a
	// [TooLarge] when a frame or message is beyond its limit, and anything else
	// when the connection was lost. After a TooLarge, sending works until Close.
	Receive() ([]byte, error)
	// Send sends one message, which it does not keep. It may return before the
	// bytes are on the wire, and blocks while the bounded buffer is full.
	Send(message []byte) error
	// Begin starts a message of unknown length. It ends with Close of the
	// writer; until then nothing else may be sent. Write blocks as Send does.
	Begin() (io.WriteCloser, error)
	// Prove blocks until the peer is known to have read all that was sent
	// before, or ctx is done. It is [ErrCannotProve] where the transport has no
	// means to know.
	Prove(ctx context.Context) error
	// Close ends the connection with a websocket status code and a reason, where
	// the transport has such. It gives what was sent a bounded time to leave, and
	// returns when no goroutine of the transport is left and a blocked Receive,
	// Send or Prove is about to return. All calls but the first do nothing.
	Close(code int, reason string) error
	// Peer names the other end as messages do: "exec-server websocket
	// 127.0.0.1:4711", "exec-server stdio".
	Peer() string
}

// HalfCloser is a [Transport] whose peer may go on reading when it has ended the
// conversation, as whoever ends the standard input of a program does.
type HalfCloser interface {
	// Listens reports whether the peer may still read what it is sent. It may be
	// used concurrently and does not block.
	Listens() bool
}

// Bounded is a [Transport] that needs a message whole before it can send any of
// it, and sends none beyond a limit.
type Bounded interface {
	// MessageLimit returns how many bytes the largest message may have that can be
	// sent now. It may be used concurrently and does not block.
	MessageLimit() int
}

// ErrCannotProve is returned by Prove of a transport that cannot know what its
// peer has read.
var ErrCannotProve = errors.New("jsonrpc: the transport cannot prove what its peer has read")

// ErrClosed is returned by a transport of this package that was closed by us.
var ErrClosed = errors.New("jsonrpc: the transport is closed")

// TooLarge is an error that says that a limit on the size of what is received
// was passed; find it with errors.As.
type TooLarge interface {
	error
	// TooLarge returns what was too large, "frame", "message" or "line", and the
	// limit in bytes.
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
