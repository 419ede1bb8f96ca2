package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is what errors.Is finds in what calls fail with that were going on when
// their client, or Process, was closed, and in what they fail with afterwards.
var ErrClosed = errors.New("the client was closed")

// ConnectionLostError says that the connection to the server is gone and cannot be
// made again: a command that was launched to serve has ended, the session of a
// connection is lost, or the hub of a relay refuses the client. Every call that is
// going on fails with it, and every later one, unless a hub comes to let the client
// in.
type ConnectionLostError struct {
	// Err is why.
	Err error
}

func (e *ConnectionLostError) Error() string {
	return fmt.Sprintf("the connection is lost for good: %v", e.Err)
}

func (e *ConnectionLostError) Unwrap() error { return e.Err }

// goneError is what a channel fails with that will never work again, so that it
// need not import this package. [grpc.ClientConn] has none: it can always try
// once more.
type goneError interface {
	error
	ConnectionGone() bool
}

// lifetime is how long a client can be used. It ends once, for a reason: ErrClosed
// or a *ConnectionLostError.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
	// refusal returns why there is no use in waiting for a connection at the moment;
	// nil as long as there is. A nil function never knows.
	refusal func() error
	// heardAt returns when something of the server came last, zero if that is not
	// known. A nil function never knows.
	heardAt func() time.Time
	uploads uploadCount
}

func newLifetime() *lifetime {
	ctx, end := context.WithCancelCause(context.Background())
	return &lifetime{ctx: ctx, end: end}
}

// over returns why the client cannot be used any more, or nil.
func (l *lifetime) over() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// explain returns what a call fails with whose channel returned err. After a Close
// that is also what would have succeeded: a server within this program ends with its
// client, and what it says then is of its end.
func (l *lifetime) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		if over := l.over(); errors.Is(over, ErrClosed) {
			return over
		}
		return err
	}
	var gone goneError
	if errors.As(err, &gone) && gone.ConnectionGone() {
		l.end(&ConnectionLostError{Err: err})
	}
	if over := l.over(); over != nil {
		return over
	}
	if l.refusal != nil && status.Code(err) == codes.Unavailable {
		if refused := l.refusal(); refused != nil {
			return &ConnectionLostError{Err: refused}
		}
	}
	return err
}

// within returns a context that is done with ctx, and at once when the client
// cannot be used any more, with the reason as its cause. The caller calls the
// function when it has finished.
func (l *lifetime) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(l.over()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// gate is a channel whose calls fail with the reason once its lifetime is over.
type gate struct {
	grpc.ClientConnInterface
	life *lifetime
}

// passesGate is the key in the context of a stream that is begun also when the
// lifetime is over: Close waits for it before it closes the connection.
type passesGate struct{}

// Invoke implements grpc.ClientConnInterface.
func (g gate) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if over := g.life.over(); over != nil {
		return over
	}
	return g.life.explain(g.ClientConnInterface.Invoke(ctx, method, args, reply, options...))
}

// NewStream implements grpc.ClientConnInterface.
func (g gate) NewStream(ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if over := g.life.over(); over != nil && ctx.Value(passesGate{}) == nil {
		return nil, over
	}
	stream, err := g.ClientConnInterface.NewStream(ctx, description, method, options...)
	if err != nil {
		return nil, g.life.explain(err)
	}
	return gatedStream{ClientStream: stream, life: g.life}, nil
}

type gatedStream struct {
	grpc.ClientStream
	life *lifetime
}

// SendMsg implements grpc.ClientStream.
func (s gatedStream) SendMsg(m any) error {
	if err := s.ClientStream.SendMsg(m); err != nil {
		return s.life.explain(err)
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s gatedStream) RecvMsg(m any) error {
	return s.life.explain(s.ClientStream.RecvMsg(m))
}
