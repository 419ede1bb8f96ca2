package wsconn

import (
	"errors"
	"fmt"
	"io"
)

// TooLargeError means that a frame or message exceeds its limit. Nothing more can
// be received; sending works until Close.
type TooLargeError struct {
	What  string // "frame" or "message"
	Bytes int64  // its size, as far as announced
	Limit int64  // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a websocket %s of %d bytes is larger than the limit of %d bytes", e.What, e.Bytes, e.Limit)
}

// TooLarge returns what was too large and the limit in bytes.
func (e *TooLargeError) TooLarge() (what string, limit int64) { return e.What, e.Limit }

// ClosedError means that the peer closed the connection with a code other than
// 1000.
type ClosedError struct {
	Code   int    // 1005 if the peer sent none
	Reason string // may be empty
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the peer closed the websocket with code %d and reason %q", e.Code, e.Reason)
}

// notNormal replaces io.EOF, which stands for a normal end, by
// io.ErrUnexpectedEOF.
func notNormal(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
