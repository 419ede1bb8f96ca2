package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/notify"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is matched by errors.Is for calls that were pending when their client, or
// Process, was closed, and for every later call.
var ErrClosed = errors.New("the client was closed")

// ConnectionLostError reports that the connection to the server is permanently lost: a
// launched server has exited, the session of a connection is lost, or the hub of a
// relay rejects the client. Pending and later calls fail with it, until a hub accepts
// the client again.
type ConnectionLostError struct {
	// Err is the cause.
	Err error
}

func (e *ConnectionLostError) Error() string {
	return fmt.Sprintf("the connection is permanently lost: %v", e.Err)
}

func (e *ConnectionLostError) Unwrap() error { return e.Err }

// permanentError is implemented by errors of a channel that will never work again, without
// importing this package. [grpc.ClientConn] has none: it can always reconnect.
type permanentError interface {
	error
	ConnectionGone() bool
}

// lifetime tracks whether a client is usable. It ends once, with ErrClosed or a
// *ConnectionLostError.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
	// rejection returns why waiting for a connection is useless at the moment, or nil. A
	// nil function always returns nil.
	rejection func() error
	// lastReceived returns when data from the server last arrived, zero if unknown. A nil
	// function always returns zero.
	lastReceived func() time.Time
	// reportsPeer is whether [grpc.Peer] is set after every call that may have been sent.
	reportsPeer bool
	// finishing are uploads, and runs whose last acknowledgement was sent: Close lets them
	// end before it closes the connection.
	finishing callCount
	// background are goroutines that end soon after the lifetime. Only what has entered may begin one.
	background sync.WaitGroup
	entering   sync.Mutex // orders enter and close
}

func newLifetime() *lifetime {
	ctx, end := context.WithCancelCause(context.Background())
	return &lifetime{ctx: ctx, end: end}
}

// enter makes close wait until leave is called. It fails once the lifetime is over.
func (l *lifetime) enter() (leave func(), err error) {
	l.entering.Lock()
	defer l.entering.Unlock()
	if over := l.over(); over != nil {
		return nil, over
	}
	l.background.Add(1)
	return l.background.Done, nil
}

// close ends the lifetime. After it, background only shrinks.
func (l *lifetime) close() {
	l.entering.Lock()
	defer l.entering.Unlock()
	l.end(ErrClosed)
}

// over returns why the client is no longer usable, or nil.
func (l *lifetime) over() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// explain returns the error of a call whose channel returned err. After Close even a
// success fails: a server within this program stops with its client, and its answer
// then is about its own end.
func (l *lifetime) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		if over := l.over(); errors.Is(over, ErrClosed) {
			return over
		}
		return err
	}
	if gone, ok := errors.AsType[permanentError](err); ok && gone.ConnectionGone() {
		l.end(&ConnectionLostError{Err: err})
	}
	if over := l.over(); over != nil {
		return over
	}
	if l.rejection != nil && status.Code(err) == codes.Unavailable {
		if refused := l.rejection(); refused != nil {
			return &ConnectionLostError{Err: refused}
		}
	}
	return err
}

// within returns a context that is done with ctx, or as soon as the client becomes
// unusable, with the reason as its cause. The caller must call the returned function.
func (l *lifetime) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(l.over()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// callCount counts the calls of a client and its derived clients that Close waits for.
type callCount struct {
	mu    sync.Mutex
	count int              // guarded by mu
	none  notify.Broadcast // guarded by mu; the count becomes zero
}

// add counts a call until the returned function is called, once.
func (c *callCount) add() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count--; c.count == 0 {
			c.none.Notify()
		}
	}
}

// wait blocks until the count is zero, for at most this long.
func (c *callCount) wait(most time.Duration) {
	c.mu.Lock()
	if c.count == 0 {
		c.mu.Unlock()
		return
	}
	none := c.none.Wait()
	c.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}

// lifetimeConn is a channel whose calls fail with the reason once its lifetime is over,
// and confine requests by a policy, unless that is nil.
type lifetimeConn struct {
	grpc.ClientConnInterface
	life   *lifetime
	policy *execwirev1.SandboxPolicy
}

// afterCloseKey is the context key of streams that may begin after the lifetime is over:
// Close waits for them before it closes the connection.
type afterCloseKey struct{}

// Invoke implements grpc.ClientConnInterface.
func (g lifetimeConn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if over := g.life.over(); over != nil {
		return over
	}
	args, err := confine(g.policy, args)
	if err != nil {
		return err
	}
	return g.life.explain(g.ClientConnInterface.Invoke(ctx, method, args, reply, options...))
}

// NewStream implements grpc.ClientConnInterface.
func (g lifetimeConn) NewStream(ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if over := g.life.over(); over != nil && ctx.Value(afterCloseKey{}) == nil {
		return nil, over
	}
	stream, err := g.ClientConnInterface.NewStream(ctx, description, method, options...)
	if err != nil {
		return nil, g.life.explain(err)
	}
	return lifetimeStream{ClientStream: stream, conn: g}, nil
}

type lifetimeStream struct {
	grpc.ClientStream
	conn lifetimeConn
}

// SendMsg implements grpc.ClientStream.
func (s lifetimeStream) SendMsg(m any) error {
	m, err := confine(s.conn.policy, m)
	if err != nil {
		return err
	}
	if err := s.ClientStream.SendMsg(m); err != nil {
		return s.conn.life.explain(err)
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s lifetimeStream) RecvMsg(m any) error {
	return s.conn.life.explain(s.ClientStream.RecvMsg(m))
}

const (
	// silentAfter is how long a server must send nothing for its connection to count as
	// lost. The connection may still exist: a relay keeps it longer for an absent
	// executor.
	silentAfter = 10 * time.Second
	// silenceInterval is how often that is checked.
	silenceInterval = time.Second
)

// errStreamOver ends the goroutines of one stream.
var errStreamOver = errors.New("the stream is over")

// converse calls receive, and meanwhile send, which may be nil, and ends them when the
// server has sent nothing for silentAfter. ctx is the context of the stream, and ends
// with it unless receive returns nil. All goroutines have ended when converse returns.
func (l *lifetime) converse(ctx context.Context, cancel context.CancelCauseFunc, send func(context.Context), receive func() error) error {
	sending, stop := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	if send != nil {
		others.Go(func() { send(sending) })
	}
	if l.lastReceived != nil {
		others.Go(func() { l.cancelOnSilence(sending, cancel) })
	}
	err := receive()
	var silent *Error
	if e, ok := err.(*Error); ok && e.Code == codes.Canceled && errors.As(context.Cause(ctx), &silent) && !silent.lostAt.IsZero() {
		err = silent
	}
	if err != nil {
		cancel(errStreamOver)
	}
	stop(errStreamOver)
	others.Wait()
	return err
}

// firstAnswer sends the first request of a stream and returns the answer. what is the
// event that it reports.
func firstAnswer[Q, R any](stream grpc.BidiStreamingClient[Q, R], request *Q, what string) (*R, error) {
	// The error of Send has no cause; Recv returns it.
	if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, FromRPC(err)
	}
	response, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, protocolErrorf("the stream ended before %s", what)
	}
	return response, FromRPC(err)
}

// cancelOnSilence calls cancel with an *Error when the server has sent nothing for
// silentAfter.
func (l *lifetime) cancelOnSilence(ctx context.Context, cancel context.CancelCauseFunc) {
	for backoff.Pause(ctx, silenceInterval) {
		if last := l.lastReceived(); !last.IsZero() && time.Since(last) > silentAfter {
			cancel(&Error{Code: codes.Unavailable, Message: fmt.Sprintf("the server has sent nothing for %v", silentAfter), lostAt: last})
		}
	}
}

// lostAt returns when the connection of a call that failed with err was lost.
func lostAt(err error) time.Time {
	if e, ok := errors.AsType[*Error](err); ok && !e.lostAt.IsZero() {
		return e.lostAt
	}
	return time.Now()
}
