package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// errPanicked ends a connection of which a part has panicked.
var errPanicked = errors.New("serving the connection panicked")

// spawn runs a part of the connection in a goroutine of its own, which tasks
// counts. If it panics the connection ends.
func (c *connection) spawn(part func()) {
	c.tasks.Go(func() {
		defer c.contain()
		part()
	})
}

// contain is deferred by everything that runs for the connection in a goroutine
// or a timer of its own: a panic ends this connection, whose session is left to
// its grace, and not the server with everybody's processes.
func (c *connection) contain() {
	if panicked := recover(); panicked != nil {
		c.panicked(c.log, panicked)
	}
}

// contain is that of the connection for a request.
func (r *request) contain() {
	if panicked := recover(); panicked != nil {
		r.panicked(r.tracedLog(r.trace), panicked)
	}
}

// panicked ends the connection.
func (c *connection) panicked(log *slog.Logger, panicked any) {
	log.Error("serving a JSON-RPC client panicked",
		slog.String("panic", fmt.Sprint(panicked)), slog.String("stack", string(debug.Stack())))
	c.end(ending{closeInternal, "the gateway failed", errPanicked})
}
