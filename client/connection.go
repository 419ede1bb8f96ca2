package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/client/execserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

const (
	// assumedGrace is the grace period of a server if unspecified: the documented
	// default.
	assumedGrace = 30 * time.Second
	// graceMargin is how much later than the client the server may detect a lost
	// connection: its keepalive, and a little more.
	graceMargin = keepaliveInterval + keepaliveTimeout + 5*time.Second
	// resumeTimeout is how long a lost connection is resumed where no process depends
	// on it.
	resumeTimeout = assumedGrace + graceMargin
	// maxUnexpected limits consecutive retries after errors of intermediaries other than
	// plain unavailability.
	maxUnexpected = 5
)

// connState is the state of a connection that is resumed after a loss. It is for one
// goroutine.
type connState struct {
	// onLost and onResumed may be nil.
	onLost    func(error)
	onResumed func()

	// instance is the instance id of the server, empty if unknown.
	instance string
	// lostAt is when the connection was lost, and lost the error of the last attempt;
	// zero while connected.
	lostAt time.Time
	lost   error
	// unexpected counts failures without progress in between.
	unexpected int
	resumed    int
	backoff    backoff.Backoff
}

// setLost records that the connection is lost, and reports it once.
func (c *connState) setLost(err error) {
	c.lost = err
	if !c.lostAt.IsZero() {
		return
	}
	c.lostAt = lostAt(err)
	if c.onLost != nil {
		c.onLost(err)
	}
}

// setConnected records that the server answers, and reports it after a loss.
func (c *connState) setConnected() {
	if c.lostAt.IsZero() {
		return
	}
	c.lostAt, c.lost = time.Time{}, nil
	c.resumed++
	if c.onResumed != nil {
		c.onResumed()
	}
}

// resetFailures records that the connection works.
func (c *connState) resetFailures() {
	c.unexpected = 0
	c.backoff.Reset()
}

// lostFor returns how long ago the connection was lost; 0 while connected.
func (c *connState) lostFor() time.Duration {
	if c.lostAt.IsZero() {
		return 0
	}
	return time.Since(c.lostAt)
}

// graceExpired reports whether the server has certainly ended what it keeps for a grace
// period after a loss.
func (c *connState) graceExpired(grace time.Duration) bool {
	return grace <= 0 || c.lostFor() > grace+graceMargin
}

// wait sleeps before the next attempt, and returns false when ctx is done.
func (c *connState) wait(ctx context.Context) bool { return c.backoff.Wait(ctx, retryAfter(c.lost)) }

// resume makes attempts until one returns nil, or final returns the error to end with.
func (c *connState) resume(ctx context.Context, attempt func(context.Context) error, final func(error) error) error {
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return final(context.Cause(ctx))
		}
		if err := final(err); err != nil {
			return err
		}
		c.setLost(err)
		if !c.wait(ctx) {
			return final(context.Cause(ctx))
		}
	}
}

// isTransient reports whether the next attempt may succeed after e.
func (c *connState) isTransient(e *Error) bool {
	if isUnexpected(e) {
		c.unexpected++
		return c.unexpected <= maxUnexpected
	}
	return isUnavailable(e)
}

// isUnavailable reports whether e says that there is no connection. One evicted in favour
// of another principal is a lost one.
func isUnavailable(e *Error) bool {
	return e.Code == codes.Unavailable || e.Reason == execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS
}

// isUnexpected reports whether e comes from a lost connection, or from something on the
// way that fails each time.
func isUnexpected(e *Error) bool {
	if e.fromServer || isUnavailable(e) {
		return false
	}
	switch e.Code {
	case codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted, codes.DeadlineExceeded:
		return true
	}
	return false
}

// progressed records that an attempt got further than those before.
func (c *connState) progressed() {
	c.setConnected()
	c.resetFailures()
}

// repeat makes attempts until one returns nil or fails for another reason than a lost
// connection, for resumeTimeout without progress.
func (c *connState) repeat(ctx context.Context, attempt func(context.Context) error) error {
	return answered(ctx, c.resume(ctx, func(ctx context.Context) error { return FromRPC(attempt(ctx)) }, func(err error) error {
		var e *Error
		if !errors.As(err, &e) || !c.isTransient(e) || c.lostFor() > resumeTimeout {
			return err
		}
		return nil
	}))
}

func (c *connState) lostError(processID string, started bool, events *eventWriter, err error) *LostError {
	return &LostError{
		ProcessID: processID, Started: started, Exit: events.exit, LastSeq: events.last,
		Lost: c.lostFor(), Restarted: isRestarted(c.instance, err), Err: err,
	}
}

// isRestarted reports whether err comes from another instance of the server than the
// given one, which may be empty for unknown.
func isRestarted(instance string, err error) bool {
	if ended, ok := errors.AsType[*execserver.LostError](err); ok {
		return ended.Restarted
	}
	var e *Error
	if instance == "" || !errors.As(err, &e) {
		return false
	}
	answered := e.Metadata["instance_id"]
	return answered != "" && answered != instance
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return min(e.RetryAfter, backoff.DefaultMax)
	}
	return 0
}

// repeatCall is repeat for a method of a stub.
func repeatCall[Q, R any](ctx context.Context, life *lifetime, call func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	return repeat(ctx, life, func(ctx context.Context) (R, error) { return call(ctx, request) })
}

// repeat makes an idempotent call, and retries it while the connection is lost.
func repeat[R any](ctx context.Context, life *lifetime, call func(context.Context) (R, error)) (R, error) {
	ctx, done := life.within(ctx)
	defer done()
	var response R
	err := new(connState).repeat(ctx, func(ctx context.Context) (err error) {
		response, err = call(ctx)
		return err
	})
	return response, err
}

// once makes a call that is not idempotent. If the connection is lost meanwhile, its error
// is a [*NotDoneError] or [*UnknownError].
func once[Q, R any](ctx context.Context, life *lifetime, call func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	var sentTo peer.Peer
	response, err := call(ctx, request, grpc.Peer(&sentTo))
	err = answered(ctx, err)
	e, ok := err.(*Error)
	switch {
	case !ok || !isUnavailable(e) && !isUnexpected(e):
	case e.fromServer && e.Code == codes.Unavailable, life.reportsPeer && sentTo.Addr == nil:
		return response, &NotDoneError{Err: e}
	default:
		return response, &UnknownError{Err: e}
	}
	return response, err
}

// answered returns the error of a call whose stub returned err.
func answered(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("failed before the server had answered: %w", context.Cause(ctx))
	}
	return FromRPC(err)
}

// receiveAll calls a method of a stub and then take for each message of its stream, up
// to the end.
func receiveAll[Q, R any](ctx context.Context, call func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[R], error),
	request *Q, take func(*R) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamOver)
	stream, err := call(ctx, request)
	for err == nil {
		var message *R
		if message, err = stream.Recv(); err == nil {
			if err := take(message); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return answered(ctx, err)
}
