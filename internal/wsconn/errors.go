package wsconn

import (
	"fmt"
	"time"
)

// TooLargeError is a frame or a message beyond its limit. Nothing more can be
// received; sending still works until Close.
type TooLargeError struct {
	What  string // "frame" or "message"
	Bytes int64  // its size, or what of it was announced so far
	Limit int64  // in bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("a websocket %s of %d bytes is larger than the limit of %d bytes", e.What, e.Bytes, e.Limit)
}

// TooLarge returns what was too large and the limit in bytes.
func (e *TooLargeError) TooLarge() (what string, limit int64) { return e.What, e.Limit }

// ClosedError is a peer that closed the connection with a code other than 1000.
type ClosedError struct {
	Code   int    // as sent; 1005 if the peer sent none
	Reason string // as sent; often empty
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the peer closed the websocket with code %d and reason %q", e.Code, e.Reason)
}

// DeadPeerError is a peer whose kernel no longer acknowledges what it is sent.
type DeadPeerError struct {
	Silent time.Duration // for how long
}

func (e *DeadPeerError) Error() string {
	return "the peer has acknowledged nothing for " + e.Silent.String()
}
