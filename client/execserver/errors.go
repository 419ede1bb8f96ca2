package execserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is wrapped by the errors of calls after Close.
var ErrClosed = errors.New("the connection is closed")

// LostError is wrapped by the errors of calls over a connection that is permanently lost
// and was not closed by Close. Its session, with every process that was started over it,
// has ended or is out of reach.
type LostError struct {
	// Peer names the server.
	Peer string
	// Restarted is whether the server was restarted, which ended the session.
	Restarted bool
	// Err is the error of the last connection, or of the attempt to resume the session.
	Err error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to %s is lost for good: %v", e.Peer, e.Err)
}

// Unwrap returns why.
func (e *LostError) Unwrap() error { return e.Err }

// ProtocolError reports that a server violated the protocol, which ends the connection
// permanently.
type ProtocolError struct {
	// Problem is what the server did.
	Problem string
}

func (e *ProtocolError) Error() string { return "the server broke the protocol: " + e.Problem }

func protocolErrorf(format string, args ...any) *ProtocolError {
	return &ProtocolError{Problem: fmt.Sprintf(format, args...)}
}

func isProtocolError(err error) bool {
	_, ok := errors.AsType[*ProtocolError](err)
	return ok
}

// goneError is the error of calls over a connection that is permanently lost.
type goneError struct{ cause error } // ErrClosed or a *LostError

func (e *goneError) Error() string              { return e.cause.Error() }
func (e *goneError) Unwrap() error              { return e.cause }
func (e *goneError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// ConnectionGone tells package client that another call is useless.
func (e *goneError) ConnectionGone() bool { return true }

func (c *Conn) goneStatus() error { return &goneError{context.Cause(c.ctx)} }

// lostStatus is the status of calls whose link was lost or could not be made. A later
// call may succeed.
func lostStatus(err error) error {
	return status.Errorf(codes.Unavailable, "the connection to the server was lost: %v", err)
}

// contextStatus is the status of calls whose context is done.
func contextStatus(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// broken ends the connection permanently because of a [*ProtocolError], and returns the
// status of the call that detected it.
func (c *Conn) broken(l *link, err error) error {
	c.lose(l, err)
	return status.Error(codes.Unavailable, err.Error())
}
