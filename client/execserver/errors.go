package execserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is what errors.Is finds in the failures of calls over a connection that
// was closed by us.
var ErrClosed = errors.New("the connection is closed")

// LostError is what errors.As finds in the failures of calls over a connection that
// is gone for good and was not closed by us. Its session, and with it every
// process that was started over it, is ended or out of reach.
type LostError struct {
	// Peer names the server.
	Peer string
	// Restarted is whether another run of the server answered than the one that had the
	// session, which ended with it.
	Restarted bool
	// Err is why: what the last connection ended with, or what the server said to
	// an attempt to resume the session.
	Err error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to %s is lost for good: %v", e.Peer, e.Err)
}

// Unwrap returns why.
func (e *LostError) Unwrap() error { return e.Err }

// ProtocolError says that a server broke the rules of the protocol. A connection to
// it is lost for good.
type ProtocolError struct {
	// Problem is what the server did.
	Problem string
}

func (e *ProtocolError) Error() string { return "the server broke the protocol: " + e.Problem }

func protocolErrorf(format string, args ...any) *ProtocolError {
	return &ProtocolError{Problem: fmt.Sprintf(format, args...)}
}

func isProtocolError(err error) bool {
	var broken *ProtocolError
	return errors.As(err, &broken)
}

// goneError is the status of a call over a connection that is gone for good, and
// the reason for that.
type goneError struct {
	status *status.Status
	cause  error // ErrClosed or a *LostError
}

func (e *goneError) Error() string              { return e.cause.Error() }
func (e *goneError) Unwrap() error              { return e.cause }
func (e *goneError) GRPCStatus() *status.Status { return e.status }

// ConnectionGone tells whoever finds it that no call will do better.
func (e *goneError) ConnectionGone() bool { return true }

// goneStatus is what calls fail with when the connection is gone for good.
func (c *Conn) goneStatus() error {
	cause := context.Cause(c.ctx)
	return &goneError{status: status.New(codes.Unavailable, cause.Error()), cause: cause}
}

// lostStatus is what calls fail with whose link was lost, or could not be made. A
// later one may have more luck.
func lostStatus(err error) error {
	return status.Errorf(codes.Unavailable, "the connection to the server was lost: %v", err)
}

// contextStatus is what calls fail with whose context is done.
func contextStatus(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// broken ends the connection for good because the server broke the protocol, and
// returns the status of the call that showed it.
func (c *Conn) broken(l *link, err error) error {
	l.end(err)
	return status.Error(codes.Unavailable, err.Error())
}
