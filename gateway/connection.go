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

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// Status codes with which a websocket is closed.
const (
	closeNormal     = 1000
	closeGoingAway  = 1001
	closePolicy     = 1008
	closeTooBig     = 1009
	closeInternal   = 1011
	closeTryAgain   = 1013
	closeSessionFor = 30 * time.Second // for the core to end a session
)

// connection is one client with its session. The goroutine of Serve receives;
// every request, the feed and the watermarks have goroutines of their own, all
// of which spawn begins and tasks counts.
type connection struct {
	gateway *Gateway
	conn    jsonrpc.Transport
	log     *slog.Logger

	upstream     grpc.ClientConnInterface
	processes    execwirev1.ProcessServiceClient
	sessions     execwirev1.SessionServiceClient
	environments execwirev1.EnvironmentServiceClient
	fileSystem   execwirev1.FileSystemServiceClient
	http         execwirev1.HttpServiceClient

	// ctx ends with the connection, and carries the attachment; calls is the
	// part of it in which requests are carried out, and polls the part of that in
	// which they wait for something to happen.
	ctx         context.Context
	cancel      context.CancelCauseFunc
	calls       context.Context
	cancelCalls context.CancelCauseFunc
	polls       context.Context
	cancelPolls context.CancelCauseFunc
	// evicted ends with the context of Serve, or when what the connection holds has
	// to give way to others.
	evicted context.Context
	evict   context.CancelCauseFunc
	tasks   sync.WaitGroup

	out     *outgoing
	permits permits
	files   fileOrder
	handles fileHandles
	watches watches
	streams coreStreams
	bulk    bulk // for files and directories
	reads   bulk // for output
	pings   pinger

	httpPlaces httpPlaces

	overfed   bool          // of the receiving goroutine; an answer had no room
	sandboxes seenSandboxes // of the receiving goroutine

	// Of the receiving goroutine until a request is dispatched; read-only
	// afterwards.
	session     *session
	environment *environmentInfo
	// acknowledges is whether the client says by itself what it has taken, and is
	// told of processes exactly.
	acknowledges bool
	subscribed   []string      // notifications that the client asked for
	asksCore     bool          // the client asks in the words of the core
	isLive       bool          // initialized has come
	live         chan struct{} // closed then

	mu      sync.Mutex
	records map[string]*process // guarded by mu; by core id
	ended   *ending             // guarded by mu; how we ended the connection
	leaving bool                // guarded by mu; the client ended it normally
	allSaid chan struct{}       // guarded by mu; closed when nothing received is left to be said; nil: nobody waits

	marks watermarks
}

// ending is how this side ends a connection.
type ending struct {
	code   int    // of the close
	reason string // told to the client
	err    error  // what Serve returns; nil for an end that is nobody's fault
}

// errServed ends what a connection has started when it is over.
var errServed = errors.New("the connection has ended")

func newConnection(g *Gateway, ctx context.Context, principal string, upstream grpc.ClientConnInterface, conn jsonrpc.Transport) *connection {
	c := &connection{
		gateway: g, conn: conn, log: g.log.With(slog.String("peer", conn.Peer())),
		upstream:     upstream,
		processes:    execwirev1.NewProcessServiceClient(upstream),
		sessions:     execwirev1.NewSessionServiceClient(upstream),
		environments: execwirev1.NewEnvironmentServiceClient(upstream),
		fileSystem:   execwirev1.NewFileSystemServiceClient(upstream),
		http:         execwirev1.NewHttpServiceClient(upstream),
		live:         make(chan struct{}),
		records:      make(map[string]*process),
	}
	// The values of ctx, and not its end: a session must be left in order.
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.calls, c.cancelCalls = context.WithCancelCause(c.ctx)
	c.polls, c.cancelPolls = context.WithCancelCause(c.calls)
	c.out = newOutgoing(c)
	c.evicted, c.evict = context.WithCancelCause(ctx)
	share := func() *wsconn.Share {
		return g.config.Budget.Share(principal, func(why *wsconn.BudgetError) { c.evict(why) })
	}
	c.permits.limits(g.config, share())
	c.httpPlaces.limits(g.config, share())
	c.watches.limit = g.config.Watches
	c.bulk.share, c.reads.share = g.answers.Share(principal, nil), g.answers.Share(principal, nil)
	c.marks.begin(c)
	return c
}

// serve is Serve but for the logging.
func (c *connection) serve() error {
	defer c.evict(nil)
	stopped := make(chan struct{})
	stop := context.AfterFunc(c.evicted, func() {
		defer close(stopped)
		defer c.contain()
		c.end(stopping(context.Cause(c.evicted)))
	})
	err := c.finish(c.receiveAll())
	if !stop() {
		<-stopped
	}
	return err
}

// stopping is the ending of a connection that is not served any more.
func stopping(cause error) ending {
	if full, ok := errors.AsType[*wsconn.BudgetError](cause); ok {
		return gaveWay(full)
	}
	if evicted, ok := errors.AsType[*auth.Error](cause); ok && evicted.Kind == auth.KindTooManyConnections {
		return ending{closeTryAgain, fmt.Sprintf("%s is reached: try again in %v", evicted.Setting, evicted.RetryAfter), evicted}
	}
	return ending{closeGoingAway, "the server stops", cause}
}

// gaveWay is the ending of a connection whose messages have no space.
func gaveWay(full *wsconn.BudgetError) ending {
	return ending{closeTryAgain, full.Reason(), full}
}

// receiveAll takes messages until no more come, or none is wanted any more, and
// returns why.
func (c *connection) receiveAll() (err error) {
	err = errPanicked // unless it returns
	defer c.contain()
	for !c.overfed {
		data, err := c.conn.Receive()
		if err != nil {
			return err
		}
		c.receive(data)
	}
	return errNotReading
}

// finish ends everything after the last message, and returns what Serve does.
func (c *connection) finish(received error) error {
	var tooLarge jsonrpc.TooLarge
	var full *wsconn.BudgetError
	switch {
	case errors.Is(received, io.EOF) && !c.hasEnded():
		c.leave()
	case errors.Is(received, errNotReading):
		c.log.Warn("disconnecting a JSON-RPC client that does not read and goes on asking",
			slog.Int("outgoing_bytes", c.gateway.config.Outgoing))
		c.end(ending{closePolicy, "too many answers wait to be read", errNotReading})
	case errors.As(received, &tooLarge):
		c.refuseTooLarge(tooLarge)
	case errors.As(received, &full):
		c.hangUp(budgetReached(), gaveWay(full))
	}
	c.cancel(errServed)
	c.unlimitAll()
	c.end(ending{closeNormal, "", lostError(received)})
	c.tasks.Wait() // what was stuck in sending has returned
	c.closeHandles()
	c.httpPlaces.end()
	c.bulk.end()
	c.reads.end()
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

// refuseTooLarge says why nothing more is read, and hangs up.
func (c *connection) refuseTooLarge(err jsonrpc.TooLarge) {
	what, limit := err.TooLarge()
	c.hangUp(&jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidRequest,
		Message: fmt.Sprintf("a %s is larger than the limit of %d bytes: %s", what, limit, err),
		Data:    map[string]any{"limit_bytes": limit},
	}, ending{closeTooBig, "a " + what + " was too large", err})
}

// hangUp says why nothing more is read, for a bounded time, and ends the
// connection.
func (c *connection) hangUp(reason *jsonrpc.Error, e ending) {
	c.out.post(appendRefusal(nil, jsonrpc.NoID, reason))
	c.sayLastWords()
	c.end(e)
}

// hasEnded reports whether this side has ended the connection.
func (c *connection) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// isLeaving reports whether the client ended the connection normally.
func (c *connection) isLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

// end ends the connection, from any goroutine. The first ending counts. It
// returns when the transport is closed.
func (c *connection) end(e ending) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = &e
	}
	c.mu.Unlock()
	c.cancel(errServed)
	_ = c.conn.Close(e.code, e.reason)
}

// receive takes one message. It never waits for a request to be carried out,
// except for initialize; if the message is large it waits until others are read.
func (c *connection) receive(data []byte) {
	var m jsonrpc.Message
	var err error
	if !c.gateway.reading.pass(c.ctx, len(data), func() { m, err = jsonrpc.Parse(data) }) {
		return
	}
	switch {
	case err != nil:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"failed to parse %sJSON-RPC message from %s: %v", c.kind(), c.conn.Peer(), err))
	case m.Kind == jsonrpc.Request:
		c.request(m, len(data))
	case m.Kind == jsonrpc.Notification:
		c.notified(m.Method)
	default:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected response with id %s: this server sends no requests", m.ID))
	}
}

// kind is how the reference calls the transport in its error texts.
func (c *connection) kind() string {
	if strings.Contains(c.conn.Peer(), "websocket") {
		return "websocket "
	}
	return ""
}

// notified takes a notification.
func (c *connection) notified(method string) {
	switch {
	case method != "initialized":
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected notification `%s`: the only one that a client sends is `initialized`", shorten(method)))
	case c.session == nil:
		c.refuse(jsonrpc.NoID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"unexpected notification `initialized`: client must call initialize first"))
	case !c.isLive:
		c.isLive = true
		if !c.acknowledges {
			c.expectHolesRead()
		}
		close(c.live)
	}
}

// refuse answers from the receiving goroutine, which must not block.
func (c *connection) refuse(id jsonrpc.ID, err *jsonrpc.Error) {
	c.answerInline(appendRefusal(nil, id, err))
}

// answerInline sends an answer without waiting for the client to read. It notes
// that there is no room for it.
func (c *connection) answerInline(message []byte) {
	if c.overfed = !c.out.post(message); !c.overfed {
		c.spawn(c.out.flush)
	}
}

var errNotReading = errors.New("the client does not read its answers and goes on asking")

func appendRefusal(dst []byte, id jsonrpc.ID, err *jsonrpc.Error) []byte {
	return jsonrpc.AppendError(dst, id, err)
}
