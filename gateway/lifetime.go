package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// Status codes of the websocket close.
const (
	closeNormal    = 1000
	closeGoingAway = 1001
	closePolicy    = 1008
	closeTooBig    = 1009
	closeInternal  = 1011
	closeRestart   = 1012
	closeTryAgain  = 1013
)

// lifetime is the life of a connection: its contexts, its goroutines, and how it ends.
type lifetime struct {
	conn jsonrpc.Transport
	log  *slog.Logger

	// ctx ends with the connection and carries the attachment. calls is the context of
	// requests; polls, derived from it, is the context of their waits for events.
	ctx         context.Context
	cancel      context.CancelCauseFunc
	calls       context.Context
	cancelCalls context.CancelCauseFunc
	polls       context.Context
	cancelPolls context.CancelCauseFunc

	tasks          sync.WaitGroup         // goroutines and timers
	ended          atomic.Pointer[ending] // how this side ended the connection
	closedByClient atomic.Bool            // the client closed the connection normally
}

// ending is how this side ends a connection.
type ending struct {
	code   int    // of the websocket close
	reason string // of the websocket close
	err    error  // returned by Serve; nil for a normal end
}

// ErrReplaced is the cause with which the context of [Gateway.Serve] ends when another
// program replaces this one: the client is told to come back at once.
var ErrReplaced = errors.New("the server is being upgraded: connect again")

// errServed is the cancellation cause for everything a connection has started.
var errServed = errors.New("the connection has ended")

// errPanicked ends a connection after a panic.
var errPanicked = errors.New("serving the connection panicked")

// newLifetime keeps the values of ctx but not its end, so that the session is left in
// order.
func newLifetime(ctx context.Context, conn jsonrpc.Transport, log *slog.Logger) *lifetime {
	l := &lifetime{conn: conn, log: log}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.calls, l.cancelCalls = context.WithCancelCause(l.ctx)
	l.polls, l.cancelPolls = context.WithCancelCause(l.calls)
	return l
}

// end ends the connection, from any goroutine. Only the first ending counts. It returns
// when the transport is closed.
func (l *lifetime) end(e ending) {
	l.ended.CompareAndSwap(nil, &e)
	l.cancel(errServed)
	_ = l.conn.Close(e.code, e.reason)
}

// isOver reports whether polls ended while the request, with context ctx, can still be
// answered.
func (l *lifetime) isOver(ctx context.Context) bool {
	return l.polls.Err() != nil && ctx.Err() == nil
}

// Spawn implements [call.Connection]: tasks counts the goroutine.
func (l *lifetime) Spawn(part func()) {
	l.tasks.Go(func() {
		defer l.recoverPanic(tracecontext.Context{})
		part()
	})
}

// delayed is a function of a connection that is called later.
type delayed struct {
	tasks *sync.WaitGroup
	timer *time.Timer
}

// after calls f after a delay in a goroutine that tasks counts. It must be stopped
// before the end of the connection.
func (l *lifetime) after(delay time.Duration, f func()) *delayed {
	l.tasks.Add(1)
	return &delayed{tasks: &l.tasks, timer: time.AfterFunc(delay, func() {
		defer l.tasks.Done()
		defer l.recoverPanic(tracecontext.Context{})
		f()
	})}
}

// stop prevents the call unless it has begun. nil does nothing.
func (d *delayed) stop() {
	if d != nil && d.timer.Stop() {
		d.tasks.Done()
	}
}

// recoverPanic is deferred in every goroutine and timer of the connection. A panic ends
// this connection, with its session in the grace period, and not the server. The log
// has the trace of the request.
func (l *lifetime) recoverPanic(trace tracecontext.Context) {
	if panicked := recover(); panicked != nil {
		tracedLog(l.log, trace).Error("serving a JSON-RPC client panicked",
			slog.String("panic", fmt.Sprint(panicked)), slog.String("stack", string(debug.Stack())))
		l.end(ending{closeInternal, "the gateway failed", errPanicked})
	}
}
