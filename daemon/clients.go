package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway"
	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/wsconn"
)

// clientsConfig is what clients need.
type clientsConfig struct {
	cfg        config.Config
	doorkeeper *doorkeeper
	logger     *slog.Logger
	// upstream returns what the calls of a client are made by.
	upstream func(clientAuthInfo) grpc.ClientConnInterface
	// ready is whether those can reach anybody. It is called concurrently.
	ready func() bool
	// changed is called when a client has come or gone, as Options.OnChange is.
	// Nil calls nothing.
	changed func()
}

// clients serves those that speak JSON-RPC, over websockets and standard
// streams.
type clients struct {
	clientsConfig
	gateway  *gateway.Gateway
	handler  *gateway.Handler
	server   *http.Server
	refusing atomic.Bool

	mu       sync.Mutex
	live     map[*clientConn]struct{} // guarded by mu
	stopping bool                     // guarded by mu
	left     chan struct{}            // closed when it is stopping and none is live
	hasLeft  func()                   // closes left, once
}

// clientConn is one connection.
type clientConn struct {
	cancel   context.CancelCauseFunc
	admitted admission // nil if no listener counts it
	attached int       // guarded by clients.mu; feeds that were not passed on to their end
}

// newClients returns clients of nobody yet. It has nothing to be closed until it
// serves.
func newClients(config clientsConfig) (*clients, error) {
	cfg := config.cfg
	budget := wsconn.NewBudget(int64(cfg.IncomingTotal))
	budget.Setting, budget.MinRate = "incoming_bytes_total", int64(cfg.IncomingRate)
	translator, err := gateway.New(gateway.Config{
		Requests: int(cfg.Requests), ControlRequests: int(cfg.ControlRequests),
		Incoming: int(cfg.Incoming), Outgoing: int(cfg.Outgoing), Answers: int(cfg.AnswersTotal), Budget: budget, Logger: config.logger,
		Processes: int(cfg.ConnectionProcesses),
		NoHTTP:    !cfg.HasHTTP(), HTTPRequests: int(cfg.HTTPConnectionRequests), HTTPBuffered: int(cfg.HTTPBuffered),
		Watches: int(cfg.ConnectionWatches),
	})
	if err != nil {
		return nil, err
	}
	c := &clients{clientsConfig: config, gateway: translator, live: make(map[*clientConn]struct{}), left: make(chan struct{})}
	c.hasLeft = sync.OnceFunc(func() { close(c.left) })
	c.handler = gateway.NewHandler(gateway.HTTPConfig{
		Websocket: wsconn.Options{
			FrameBytes: int64(cfg.Frame), MessageBytes: int64(cfg.Request), Budget: budget, PingInterval: time.Duration(cfg.PingInterval),
			DeadAfter: time.Duration(cfg.KeepaliveInterval + cfg.KeepaliveTimeout), Label: "exec-server websocket",
		},
		Origins:       cfg.Origins,
		OriginRefused: tellOrigins(config.logger),
		Authenticate:  c.authenticate,
		Ready:         func() bool { return !c.refusing.Load() && c.ready() },
		Serve:         c.serveWebsocket,
	})
	c.server = gateway.NewHTTPServer(c.handler, c.logger)
	c.server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateActive {
			listen.Begin(conn)
		}
	}
	c.server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, arrivalKey{}, &arrival{conn: conn})
	}
	return c, nil
}

// arrivalKey is of the connection that a request came on, and of who was let in
// on it.
type arrivalKey struct{}

type arrival struct {
	conn     net.Conn
	info     clientAuthInfo // once somebody was let in
	admitted admission      // the same
}

// authenticate says who asks for a websocket.
func (c *clients) authenticate(r *http.Request) (auth.Caller, *gateway.Refusal) {
	a := r.Context().Value(arrivalKey{}).(*arrival)
	caller, info, admitted, err := c.doorkeeper.upgrade(r, a.conn)
	if err != nil {
		c.logger.Log(r.Context(), refusalLevel(err), "a websocket was refused", "peer", r.RemoteAddr, "error", err.Error())
		return auth.Caller{}, gateway.RefusalOf(err, c.cfg.WebsocketAuth == string(auth.WebsocketSignedToken))
	}
	c.logger.Debug("a websocket was opened", "peer", r.RemoteAddr, "principal", caller.Principal.Name, "via", caller.Via.Name)
	a.info, a.admitted = info, admitted
	return caller, nil
}

// admittedOf returns that of the connection of a websocket, and nil of others.
func admittedOf(ctx context.Context) admission {
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		return a.admitted
	}
	return nil
}

// keepAliveQuestions is how often the kernel asks within keepalive_timeout.
const keepAliveQuestions = 3

// serve serves a listener until stop, and then returns nil.
func (c *clients) serve(l net.Listener) error {
	tuned := wsconn.Tune(l, wsconn.Tuning{
		KeepAliveIdle:     time.Duration(c.cfg.KeepaliveInterval),
		KeepAliveInterval: max(time.Duration(c.cfg.KeepaliveTimeout)/keepAliveQuestions, time.Second),
		KeepAliveCount:    keepAliveQuestions,
	})
	if err := c.server.Serve(tuned); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (c *clients) serveWebsocket(ctx context.Context, caller auth.Caller, conn *wsconn.Conn) {
	a := ctx.Value(arrivalKey{}).(*arrival)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.admitted.OnEvict(func(why error) { cancel(why) })()
	c.serveTransport(ctx, caller.Principal.Name, a.info, conn)
}

// serveStdio serves the standard streams, if that is a door. The channel that it
// returns is closed when their client has left and nobody else can come; serving
// waits for it.
func (o *doors) serveStdio(c *clients, serving *sync.WaitGroup) (left <-chan struct{}) {
	if o.stdio == nil {
		return nil
	}
	gone := make(chan struct{})
	serving.Go(func() {
		defer close(gone)
		c.serveTransport(context.Background(), o.stdio.principal, o.stdio.info, o.stdio.transport)
	})
	if !o.onlyStdio() {
		return nil
	}
	return gone
}

// serveTransport serves a client of a principal until its connection has ended.
func (c *clients) serveTransport(ctx context.Context, principal string, info clientAuthInfo, transport jsonrpc.Transport) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	one := &clientConn{cancel: cancel, admitted: admittedOf(ctx)}
	c.enter(one)
	defer c.leave(one)
	defer c.recovered(transport.Peer())
	// What ended it is in the gateway's log.
	_ = c.gateway.Serve(ctx, principal, &tracked{ClientConnInterface: c.upstream(info), clients: c, client: one}, transport)
}

// recovered keeps a panic to the connection that it came from.
func (c *clients) recovered(peer string) {
	if panicked := recover(); panicked != nil {
		c.logger.Error("serving a client of JSON-RPC panicked", "peer", peer, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	}
}

func (c *clients) enter(one *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[one] = struct{}{}
	c.dismiss(one)
	c.tellChange()
}

func (c *clients) leave(one *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, one)
	if c.stopping && len(c.live) == 0 {
		c.hasLeft()
	}
	c.tellChange()
}

func (c *clients) tellChange() {
	if c.changed != nil {
		c.changed()
	}
}

// change says that a feed of a client has begun, or was passed on to its end.
func (c *clients) change(one *clientConn, feeds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.attached += feeds
	c.dismiss(one)
}

// dismiss ends the connection of a client that has nothing more to be told, when
// all are to end. mu is held.
func (c *clients) dismiss(one *clientConn) {
	if c.stopping && one.attached == 0 {
		one.cancel(errStopping)
	}
}
