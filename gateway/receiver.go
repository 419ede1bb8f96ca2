package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/internal/wsconn"
)

// Serve serves one connection of a principal, for whom [Config.Budget] counts. It
// blocks until nothing of the connection is left, and closes conn. Requests become
// calls of upstream, which authenticates the caller and must outlive Serve.
//
// When the client closes the connection normally, Serve answers the requests in flight
// and ends the session. When the connection is lost or ctx ends, the session enters its
// grace period. The error is nil after a normal end, the cause of ctx after its end,
// else the reason.
func (g *Gateway) Serve(ctx context.Context, principal string, upstream grpc.ClientConnInterface, conn jsonrpc.Transport) error {
	err := newReceiver(g, ctx, principal, upstream, conn).serve()
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		g.log.Info("a JSON-RPC connection has ended", slog.String("peer", conn.Peer()), slog.String("error", err.Error()))
	}
	return err
}

// receiver receives the messages of one client in the goroutine of Serve, and starts
// and ends everything else of its connection.
type receiver struct {
	*connection
	decoding decodeLimiter
	permits  permits

	// evicted ends with the context of Serve, or when the connection must release its
	// memory for others.
	evicted context.Context
	evict   context.CancelCauseFunc

	outgoingFull bool // a refusal did not fit into the queue
	isLive       bool // initialized was received
}

func newReceiver(g *Gateway, ctx context.Context, principal string, upstream grpc.ClientConnInterface, conn jsonrpc.Transport) *receiver {
	config := g.config()
	life := newLifetime(ctx, conn, g.log.With(slog.String("peer", conn.Peer())))
	c := &receiver{connection: newConnection(life, *config, g.gateLimits, g.answers, upstream), decoding: g.decoding}
	c.evicted, c.evict = context.WithCancelCause(ctx)
	share := func() *wsconn.Share {
		return config.Budget.Share(principal, func(why *wsconn.BudgetError) { c.evict(why) })
	}
	c.permits.configure(*config, share())
	c.http = httpcalls.New(execwirev1.NewHttpServiceClient(upstream), c, httpcalls.Config{
		Disabled: config.NoHTTP, Requests: config.HTTPRequests, Buffered: config.HTTPBuffered, Share: share()})
	return c
}

// serve is Serve without logging.
func (c *receiver) serve() error {
	defer c.evict(nil)
	stopped := make(chan struct{})
	stop := context.AfterFunc(c.evicted, func() {
		defer close(stopped)
		defer c.recoverPanic(tracecontext.Context{})
		c.end(endingOf(context.Cause(c.evicted)))
	})
	err := c.finish(c.receiveAll())
	if !stop() {
		<-stopped
	}
	return err
}

// endingOf returns the ending of an evicted connection.
func endingOf(cause error) ending {
	if full, ok := errors.AsType[*wsconn.BudgetError](cause); ok {
		return evictedEnding(full)
	}
	if evicted, ok := errors.AsType[*auth.Error](cause); ok && evicted.Kind == auth.KindTooManyConnections {
		return ending{closeTryAgain, fmt.Sprintf("%s is reached: try again in %v", evicted.Setting, evicted.RetryAfter), evicted}
	}
	if errors.Is(cause, ErrReplaced) {
		return ending{closeRestart, ErrReplaced.Error(), cause}
	}
	return ending{closeGoingAway, "the server stops", cause}
}

// evictedEnding is the ending of a connection whose messages exceed the memory of all
// connections.
func evictedEnding(full *wsconn.BudgetError) ending {
	return ending{closeTryAgain, full.Reason(), full}
}

// receiveAll receives messages until the connection ends, and returns the reason.
func (c *receiver) receiveAll() (err error) {
	err = errPanicked // overwritten on return, kept on panic
	defer c.recoverPanic(tracecontext.Context{})
	for !c.outgoingFull {
		data, err := c.conn.Receive()
		if err != nil {
			return err
		}
		c.receive(data)
	}
	return errNotReading
}

// finish ends everything after the last message and returns the result of Serve.
func (c *receiver) finish(received error) error {
	var tooLarge jsonrpc.TooLarge
	var full *wsconn.BudgetError
	switch {
	case errors.Is(received, io.EOF) && c.ended.Load() == nil:
		c.shutDown()
	case errors.Is(received, errNotReading):
		c.log.Warn("disconnecting a JSON-RPC client that does not read responses and keeps sending requests",
			slog.Int("outgoing_bytes", c.config.Outgoing))
		c.end(ending{closePolicy, "too many answers wait to be read", errNotReading})
	case errors.As(received, &tooLarge):
		c.refuseTooLarge(tooLarge)
	case errors.As(received, &full):
		c.refuseAndEnd(rpcerror.BudgetReached(), evictedEnding(full))
	}
	c.cancel(errServed)
	c.delivery.stopTimers()
	c.end(ending{closeNormal, "", lostError(received)})
	c.tasks.Wait() // blocked sends have returned
	c.files.Close(c.ctx)
	c.http.Close()
	return c.ended.Load().err
}

func lostError(received error) error {
	if errors.Is(received, io.EOF) {
		return nil
	}
	return fmt.Errorf("the connection was lost: %w", received)
}

// refuseTooLarge reports a message that is too large and ends the connection.
func (c *receiver) refuseTooLarge(err jsonrpc.TooLarge) {
	what, limit := err.TooLarge()
	c.refuseAndEnd(&jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidRequest,
		Message: fmt.Sprintf("a %s is larger than the limit of %d bytes: %s", what, limit, err),
		Data:    map[string]any{"limit_bytes": limit},
	}, ending{closeTooBig, "a " + what + " was too large", err})
}

// refuseAndEnd sends an error, for a bounded time, and ends the connection.
func (c *receiver) refuseAndEnd(reason *jsonrpc.Error, e ending) {
	c.out.post(jsonrpc.AppendError(nil, jsonrpc.NoID, reason))
	c.flushOutgoing()
	c.end(e)
}

// receive handles one message. It does not wait for requests other than initialize;
// decoding a large message waits for a slot.
func (c *receiver) receive(data []byte) {
	var m jsonrpc.Message
	var err error
	if !c.decoding.run(c.ctx, len(data), func() { m, err = jsonrpc.Parse(data) }) {
		return
	}
	switch {
	case err != nil:
		c.refuse(jsonrpc.NoID, "failed to parse %sJSON-RPC message from %s: %v", c.kind(), c.conn.Peer(), err)
	case m.Kind == jsonrpc.Request:
		c.addTrace(&m)
		c.request(m, len(data))
	case m.Kind == jsonrpc.Notification:
		c.notification(m.Method)
	default:
		c.refuse(jsonrpc.NoID, "unexpected response with id %s: this server sends no requests", m.ID)
	}
}

// kind returns the reference's name of the transport in error texts.
func (c *receiver) kind() string {
	if strings.Contains(c.conn.Peer(), "websocket") {
		return "websocket "
	}
	return ""
}

// notification handles a notification.
func (c *receiver) notification(method string) {
	switch {
	case method != "initialized":
		c.refuse(jsonrpc.NoID, "unexpected notification `%s`: the only one that a client sends is `initialized`", param.Shorten(method))
	case c.session == nil:
		c.refuse(jsonrpc.NoID, "unexpected notification `initialized`: client must call initialize first")
	case !c.isLive:
		c.isLive = true
		c.marks.startBacklogTimeout()
		close(c.live)
	}
}

// request handles a request: it starts a goroutine that serves it.
func (c *receiver) request(m jsonrpc.Message, bytes int) {
	if m.Method == "initialize" {
		c.postAnswer(c.initialize(m))
		return
	}
	known, ok := methods[m.Method]
	if !ok {
		c.postAnswer(jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound,
			"exec-server stub does not implement `%s` yet", param.Shorten(m.Method))))
		return
	}
	var decoded any
	var err *jsonrpc.Error
	if !c.decoding.run(c.ctx, bytes, func() { decoded, err = known.decode(m.Params, c.files) }) {
		return
	}
	if err == nil {
		err = c.admits(known.group)
	}
	var release func()
	if err == nil {
		waiting, ok := decoded.(blockingCall)
		release, err = c.permits.acquire(known.control && !(ok && waiting.blocks()), bytes)
	}
	if err != nil {
		c.noteLimit(err)
		c.postAnswer(jsonrpc.AppendError(nil, m.ID, err))
		return
	}
	r := newRequest(c.connection, m, decoded, release)
	c.enqueue(r)
	c.answering.Add(1)
	c.Spawn(r.serve)
}

// noteLimit reports an error that is about a limit of the gateway.
func (c *connection) noteLimit(failed *jsonrpc.Error) {
	if setting := rpcerror.OwnLimit(failed); setting != "" {
		c.config.OnLimit(setting)
	}
}

// admits returns an error if the group's methods are not allowed yet.
func (c *receiver) admits(group string) *jsonrpc.Error {
	switch {
	case c.session == nil:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must call initialize before using %s methods", group)
	case !c.isLive:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must send initialized before using %s methods", group)
	}
	return nil
}

// enqueue assigns the request its turn. Calls are in the order in which requests
// arrive.
func (c *receiver) enqueue(r *request) {
	if named, ok := r.call.(call.WatchCall); ok {
		c.watches.Enqueue(&r.turn, named)
	}
	switch named := r.call.(type) {
	case processCall:
		id, kind := named.order()
		c.table.enqueue(&r.turn, id.server(), kind)
	case portCall:
		if id := named.server(); id != "" {
			c.table.enqueue(&r.turn, id, orderAny)
		}
	case files.Call:
		c.files.Enqueue(&r.turn, named)
	case *httpcalls.Request:
		c.http.Enqueue(named)
	}
}

// refuse sends an error about a malformed message or one that is not allowed.
func (c *receiver) refuse(id jsonrpc.ID, format string, args ...any) {
	c.postAnswer(jsonrpc.AppendError(nil, id, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, format, args...)))
}

// postAnswer queues an answer: the receiving goroutine must not block. If the queue is
// full, it sets outgoingFull.
func (c *receiver) postAnswer(message []byte) {
	if c.outgoingFull = !c.out.post(message); !c.outgoingFull {
		c.Spawn(c.out.flush)
	}
}

var errNotReading = errors.New("the client does not read responses and keeps sending requests")
