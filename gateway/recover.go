package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// errPanicked ends a connection after a panic.
var errPanicked = errors.New("serving the connection panicked")

// Spawn implements [call.Connection]: tasks counts the goroutine.
func (c *connection) Spawn(part func()) {
	c.tasks.Go(func() {
		defer c.recoverPanic()
		part()
	})
}

// delayed is a function of a connection that is called later.
type delayed struct {
	conn  *connection
	timer *time.Timer
}

// after calls f after a delay in a goroutine that tasks counts. It must be stopped
// before the end of the connection.
func (c *connection) after(delay time.Duration, f func()) *delayed {
	c.tasks.Add(1)
	return &delayed{conn: c, timer: time.AfterFunc(delay, func() {
		defer c.tasks.Done()
		defer c.recoverPanic()
		f()
	})}
}

// stop prevents the call unless it has begun. nil does nothing.
func (d *delayed) stop() {
	if d != nil && d.timer.Stop() {
		d.conn.tasks.Done()
	}
}

// recoverPanic is deferred in every goroutine and timer of the connection. A panic ends
// this connection, with its session in the grace period, and not the server.
func (c *connection) recoverPanic() {
	if panicked := recover(); panicked != nil {
		c.handlePanic(c.log, panicked)
	}
}

// recoverPanic adds the request's trace to the log.
func (r *request) recoverPanic() {
	if panicked := recover(); panicked != nil {
		r.handlePanic(r.tracedLog(r.trace), panicked)
	}
}

// handlePanic logs a panic and ends the connection.
func (c *connection) handlePanic(log *slog.Logger, panicked any) {
	log.Error("serving a JSON-RPC client panicked",
		slog.String("panic", fmt.Sprint(panicked)), slog.String("stack", string(debug.Stack())))
	c.end(ending{closeInternal, "the gateway failed", errPanicked})
}
