package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// Status codes of the websocket close.
const (
	closeNormal         = 1000
	closeGoingAway      = 1001
	closePolicy         = 1008
	closeTooBig         = 1009
	closeInternal       = 1011
	closeTryAgain       = 1013
	closeSessionTimeout = 30 * time.Second // for the server to end a session
)

// connection is one client with its session. The goroutine of Serve receives. Requests,
// the feed and the watermarks run in goroutines of their own, which spawn starts and
// tasks counts.
type connection struct {
	gateway *Gateway
	conn    jsonrpc.Transport
	log     *slog.Logger

	processes    execwirev1.ProcessServiceClient
	sessions     execwirev1.SessionServiceClient
	environments execwirev1.EnvironmentServiceClient

	// ctx ends with the connection and carries the attachment. calls is the context of
	// requests; polls, derived from it, is the context of their waits for events.
	ctx         context.Context
	cancel      context.CancelCauseFunc
	calls       context.Context
	cancelCalls context.CancelCauseFunc
	polls       context.Context
	cancelPolls context.CancelCauseFunc
	// evicted ends with the context of Serve, or when the connection must release its
	// memory for others.
	evicted context.Context
	evict   context.CancelCauseFunc
	tasks   sync.WaitGroup

	out           *outgoing
	permits       permits
	answering     sync.WaitGroup // requests that are not answered
	files         *files.Service
	http          *httpcalls.Service
	outputAnswers *call.Limiter // for process output
	pings         pinger

	outgoingFull bool // of the receiving goroutine; a refusal did not fit into the queue

	// Of the receiving goroutine until a request is dispatched; read-only afterwards.
	session     *session
	environment *environmentInfo
	subscribed  []string      // notifications that the client subscribed to
	isLive      bool          // initialized was received
	live        chan struct{} // closed by initialized

	table processTable

	mu             sync.Mutex
	ended          *ending // guarded by mu; how this side ended the connection
	closedByClient bool    // guarded by mu; the client closed the connection normally
}

// ending is how this side ends a connection.
type ending struct {
	code   int    // of the websocket close
	reason string // of the websocket close
	err    error  // returned by Serve; nil for a normal end
}

// errServed is the cancellation cause for everything a connection has started.
var errServed = errors.New("the connection has ended")

func newConnection(g *Gateway, ctx context.Context, principal string, upstream grpc.ClientConnInterface, conn jsonrpc.Transport) *connection {
	c := &connection{
		gateway: g, conn: conn, log: g.log.With(slog.String("peer", conn.Peer())),
		processes:    execwirev1.NewProcessServiceClient(upstream),
		sessions:     execwirev1.NewSessionServiceClient(upstream),
		environments: execwirev1.NewEnvironmentServiceClient(upstream),
		live:         make(chan struct{}),
	}
	// Keep the values of ctx but not its end, so that the session is left in order.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.calls, c.cancelCalls = context.WithCancelCause(c.ctx)
	c.polls, c.cancelPolls = context.WithCancelCause(c.calls)
	c.out = newOutgoing(c)
	c.evicted, c.evict = context.WithCancelCause(ctx)
	share := func() *wsconn.Share {
		return g.config.Budget.Share(principal, func(why *wsconn.BudgetError) { c.evict(why) })
	}
	c.permits.configure(g.config, share())
	c.http = httpcalls.New(execwirev1.NewHttpServiceClient(upstream), c, httpcalls.Config{
		Disabled: g.config.NoHTTP, Requests: g.config.HTTPRequests, Buffered: g.config.HTTPBuffered, Share: share()})
	c.files = files.New(execwirev1.NewFileSystemServiceClient(upstream), c, g.config.Watches, g.answers)
	c.outputAnswers = call.NewLimiter(g.answers)
	c.table.begin(c)
	return c
}

// serve is Serve without logging.
func (c *connection) serve() error {
	defer c.evict(nil)
	stopped := make(chan struct{})
	stop := context.AfterFunc(c.evicted, func() {
		defer close(stopped)
		defer c.recoverPanic()
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
	return ending{closeGoingAway, "the server stops", cause}
}

// evictedEnding is the ending of a connection whose messages exceed the memory of all
// connections.
func evictedEnding(full *wsconn.BudgetError) ending {
	return ending{closeTryAgain, full.Reason(), full}
}

// receiveAll receives messages until the connection ends, and returns the reason.
func (c *connection) receiveAll() (err error) {
	err = errPanicked // overwritten on return, kept on panic
	defer c.recoverPanic()
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
func (c *connection) finish(received error) error {
	var tooLarge jsonrpc.TooLarge
	var full *wsconn.BudgetError
	switch {
	case errors.Is(received, io.EOF) && !c.hasEnded():
		c.shutDown()
	case errors.Is(received, errNotReading):
		c.log.Warn("disconnecting a JSON-RPC client that does not read responses and keeps sending requests",
			slog.Int("outgoing_bytes", c.gateway.config.Outgoing))
		c.end(ending{closePolicy, "too many answers wait to be read", errNotReading})
	case errors.As(received, &tooLarge):
		c.refuseTooLarge(tooLarge)
	case errors.As(received, &full):
		c.refuseAndEnd(rpcerror.BudgetReached(), evictedEnding(full))
	}
	c.cancel(errServed)
	c.table.stopTimers()
	c.end(ending{closeNormal, "", lostError(received)})
	c.tasks.Wait() // blocked sends have returned
	c.files.Close(c.ctx)
	c.http.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended.err
}

func lostError(received error) error {
	if errors.Is(received, io.EOF) {
		return nil
	}
	return fmt.Errorf("the connection was lost: %w", received)
}

// refuseTooLarge reports a message that is too large and ends the connection.
func (c *connection) refuseTooLarge(err jsonrpc.TooLarge) {
	what, limit := err.TooLarge()
	c.refuseAndEnd(&jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidRequest,
		Message: fmt.Sprintf("a %s is larger than the limit of %d bytes: %s", what, limit, err),
		Data:    map[string]any{"limit_bytes": limit},
	}, ending{closeTooBig, "a " + what + " was too large", err})
}

// refuseAndEnd sends an error, for a bounded time, and ends the connection.
func (c *connection) refuseAndEnd(reason *jsonrpc.Error, e ending) {
	c.out.post(appendRefusal(nil, jsonrpc.NoID, reason))
	c.flushOutgoing()
	c.end(e)
}

// hasEnded reports whether this side has ended the connection.
func (c *connection) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// isClosedByClient reports whether the client closed the connection normally.
func (c *connection) isClosedByClient() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closedByClient
}

// end ends the connection, from any goroutine. Only the first ending counts. It returns
// when the transport is closed.
func (c *connection) end(e ending) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = &e
	}
	c.mu.Unlock()
	c.cancel(errServed)
	_ = c.conn.Close(e.code, e.reason)
}

// receive handles one message. It does not wait for requests other than initialize;
// decoding a large message waits for a slot.
func (c *connection) receive(data []byte) {
	var m jsonrpc.Message
	var err error
	if !c.gateway.decoding.run(c.ctx, len(data), func() { m, err = jsonrpc.Parse(data) }) {
		return
	}
	switch {
	case err != nil:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"failed to parse %sJSON-RPC message from %s: %v", c.kind(), c.conn.Peer(), err))
	case m.Kind == jsonrpc.Request:
		c.request(m, len(data))
	case m.Kind == jsonrpc.Notification:
		c.notification(m.Method)
	default:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected response with id %s: this server sends no requests", m.ID))
	}
}

// kind returns the reference's name of the transport in error texts.
func (c *connection) kind() string {
	if strings.Contains(c.conn.Peer(), "websocket") {
		return "websocket "
	}
	return ""
}

// notification handles a notification.
func (c *connection) notification(method string) {
	switch {
	case method != "initialized":
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected notification `%s`: the only one that a client sends is `initialized`", param.Shorten(method)))
	case c.session == nil:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected notification `initialized`: client must call initialize first"))
	case !c.isLive:
		c.isLive = true
		c.table.startBacklogTimeout()
		close(c.live)
	}
}

// refuse sends an error from the receiving goroutine, which must not block.
func (c *connection) refuse(id jsonrpc.ID, err *jsonrpc.Error) {
	c.postAnswer(appendRefusal(nil, id, err))
}

// postAnswer queues an answer without blocking. If the queue is full, it sets
// outgoingFull.
func (c *connection) postAnswer(message []byte) {
	if c.outgoingFull = !c.out.post(message); !c.outgoingFull {
		c.Spawn(c.out.flush)
	}
}

var errNotReading = errors.New("the client does not read responses and keeps sending requests")

func appendRefusal(dst []byte, id jsonrpc.ID, err *jsonrpc.Error) []byte {
	return jsonrpc.AppendError(dst, id, err)
}

const (
	// maxContent is the largest content of an answer, as in the reference.
	maxContent = 512 << 20
	// aroundContent is the largest size of an answer beside its content.
	aroundContent = 64 << 10
)

// ContentLimit implements [call.Connection]: the limit of the protocol, or less if the
// transport accepts only smaller messages.
func (c *connection) ContentLimit() int {
	bounded, ok := c.conn.(jsonrpc.Bounded)
	if !ok {
		return maxContent
	}
	return min(max(bounded.MessageLimit()-aroundContent, 0)/4*3, maxContent)
}

// Send implements [call.Connection].
func (c *connection) Send(appendTo func(dst []byte) []byte) error {
	err := c.out.sendOne(appendTo)
	if err != nil {
		c.end(ending{closeInternal, "a notification could not be sent", err})
	}
	return err
}
