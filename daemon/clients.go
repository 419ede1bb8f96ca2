package daemon

import (
	"context"
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
	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/httpstall"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/server/auditcall"
)

// clientsConfig is the configuration of clients.
type clientsConfig struct {
	cfg           config.Config // at the start
	authenticator *authenticator
	logger        *slog.Logger
	audit         *auditcall.Auditor // nil records nothing
	// upstream returns the connection for the calls of a client.
	upstream func(clientAuthInfo) grpc.ClientConnInterface
	// metrics are served at /metrics.
	metrics *serverMetrics
	// ready reports whether upstream is reachable. It is called concurrently.
	ready func() bool
	// changed is called when a client has connected or disconnected, as
	// Options.OnChange is. Nil calls nothing.
	changed func()
}

// clients serves clients of HTTP, and JSON-RPC clients over websockets and standard
// streams.
type clients struct {
	clientsConfig
	gateway  *gateway.Gateway
	budget   *wsconn.Budget
	hosts    atomic.Pointer[listen.Hosts]
	handler  *wsserver.Handler
	server   *http.Server
	refusing atomic.Bool

	mu        sync.Mutex
	live      map[*clientConn]struct{} // guarded by mu
	stopping  bool                     // guarded by mu
	left      chan struct{}            // closed when stopping and no client is live
	closeLeft func()                   // closes left; may be called again
}

// clientConn is one JSON-RPC connection, or one HTTP request of another kind.
type clientConn struct {
	cancel   context.CancelCauseFunc
	admitted listen.Admission
	// pending is what stop waits for: feeds not delivered to their end, or the one
	// response to an HTTP request. Guarded by clients.mu.
	pending int
}

// newClients returns clients without any connection. They need not be closed unless
// they serve.
func newClients(config clientsConfig) (*clients, error) {
	cfg := config.cfg
	budget := wsconn.NewBudget(int64(cfg.IncomingTotal))
	budget.Setting, budget.MinRate = "incoming_bytes_total", int64(cfg.IncomingRate)
	limits := gatewayConfig(cfg)
	limits.Answers, limits.Budget, limits.Logger = int(cfg.AnswersTotal), budget, config.logger
	limits.OnLimit = config.metrics.limitHit
	translator, err := gateway.New(limits)
	if err != nil {
		return nil, err
	}
	c := &clients{clientsConfig: config, gateway: translator, budget: budget, live: make(map[*clientConn]struct{}), left: make(chan struct{})}
	c.closeLeft = sync.OnceFunc(func() { close(c.left) })
	c.handler = wsserver.NewHandler(wsserver.HTTPConfig{
		OriginRefused: logRefusedOrigins(config.logger),
		HostKnown:     func(r *http.Request) bool { return c.hosts.Load().Know(httpConnOf(r).conn, r.Host) },
		Mounts:        c.mounts(),
		Authenticate:  c.authenticate,
		Ready:         func() bool { return !c.refusing.Load() && c.ready() },
		Serve:         c.serveWebsocket,
	})
	c.configure(cfg)
	c.server = wsserver.NewHTTPServer(c.handler, time.Duration(cfg.HandshakeTimeout), c.logger)
	c.server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateActive {
			listen.Begin(conn)
		}
	}
	c.server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		on := &httpConn{conn: conn}
		on.peer, on.unknown = listen.AuthInfoOf(conn)
		return context.WithValue(ctx, httpConnKey{}, on)
	}
	return c, nil
}

// gatewayConfig has the limits of each JSON-RPC connection.
func gatewayConfig(cfg config.Config) gateway.Config {
	return gateway.Config{
		Requests: int(cfg.Requests), ControlRequests: int(cfg.ControlRequests),
		Incoming: int(cfg.Incoming), Outgoing: int(cfg.Outgoing),
		Processes: int(cfg.ConnectionProcesses),
		NoHTTP:    !cfg.HasHTTP(), HTTPRequests: int(cfg.HTTPConnectionRequests), HTTPBuffered: int(cfg.HTTPBuffered),
		Watches: int(cfg.ConnectionWatches),
	}
}

// configure sets what can change: the accepted hosts and origins, and the limits of
// connections that begin later. The configuration is valid.
func (c *clients) configure(cfg config.Config) {
	hosts := listen.NewHosts(cfg.Hosts...)
	c.hosts.Store(&hosts)
	c.handler.SetConnections(wsconn.Options{
		FrameBytes: int64(cfg.Frame), MessageBytes: int64(cfg.Request), Budget: c.budget, PingInterval: time.Duration(cfg.PingInterval),
		DeadAfter: time.Duration(cfg.KeepaliveInterval + cfg.KeepaliveTimeout), Label: "exec-server websocket",
	}, cfg.Origins)
	_ = c.gateway.SetLimits(gatewayConfig(cfg))
}

// httpConnKey is the context key of the [httpConn] of a request.
type httpConnKey struct{}

// httpConn is a connection of the HTTP server.
type httpConn struct {
	conn     net.Conn
	peer     listen.AuthInfo  // what the listener knows
	unknown  error            // why it does not know the peer
	info     clientAuthInfo   // of a websocket, once authenticated
	admitted listen.Admission // of a websocket, once authenticated
}

func httpConnOf(r *http.Request) *httpConn { return r.Context().Value(httpConnKey{}).(*httpConn) }

// httpCall is an HTTP request of an authenticated caller that is not for a websocket.
type httpCall struct {
	caller auth.Caller
	info   clientAuthInfo  // of the calls that are made for it
	ctx    context.Context // of the request; ends also when the connection is evicted, and when the server stops
	end    func()          // must be called when the response is complete
}

// admitFunc authenticates an HTTP request that is not for a websocket. See
// [authenticator.admitHTTP].
type admitFunc func(*http.Request, *httpConn) (auth.Caller, clientAuthInfo, listen.Admission, error)

// beginHTTP authenticates an HTTP request of a mount by admit, and marks its connection
// as in use until the call ends; see [clients.track]. It logs the error, which
// [server.MayCall] translates.
func (c *clients) beginHTTP(r *http.Request, admit admitFunc) (*httpCall, error) {
	caller, info, admitted, err := admit(r, httpConnOf(r))
	if err != nil {
		c.logger.Log(r.Context(), refusalLevel(err), "a request was refused", "peer", r.RemoteAddr, "path", fmt.Sprintf("%.100s", r.URL.Path), "error", err.Error())
		c.auditRefusal(auditedPeer(httpPeerOf(r, httpConnOf(r), false)), caller, "", err)
		return nil, err
	}
	ctx, end := c.track(r.Context(), admitted)
	return &httpCall{caller: caller, info: info, ctx: ctx, end: end}, nil
}

// track marks the connection of an HTTP request as in use until end is called, when the
// response was written. When the server stops, it waits flushTimeout for that, and then
// ends the returned context and interrupts the request.
func (c *clients) track(request context.Context, admitted listen.Admission) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(request)
	stopUse := admitted.Use(func(why error) { cancel(why) })
	stopped := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); cause == errFlush || cause == gateway.ErrReplaced {
			httpstall.Interrupt(ctx)
		}
	})
	one := &clientConn{cancel: cancel, admitted: admitted, pending: 1}
	c.add(one)
	return ctx, func() {
		stopped()
		c.remove(one)
		stopUse()
		cancel(errCallOver)
	}
}

// authenticate identifies the client that requests a websocket.
func (c *clients) authenticate(r *http.Request) (auth.Caller, *wsserver.Refusal) {
	a := httpConnOf(r)
	caller, info, admitted, err := c.authenticator.admitRequest(r, a, true)
	if err != nil {
		c.logger.Log(r.Context(), refusalLevel(err), "a websocket was refused", "peer", r.RemoteAddr, "error", err.Error())
		c.auditRefusal(auditedPeer(httpPeerOf(r, a, true)), caller, "", err)
		return auth.Caller{}, wsserver.RefusalOf(err, c.cfg.WebsocketAuth == string(auth.WebsocketSignedToken))
	}
	c.logger.Debug("a websocket was opened", "peer", r.RemoteAddr, "principal", caller.Principal.Name, "via", caller.Via.Name)
	a.info, a.admitted = info, admitted
	return caller, nil
}

// admittedOf returns the admission of a websocket's connection, and that of no connection
// for others.
func admittedOf(ctx context.Context) listen.Admission {
	if a, ok := ctx.Value(httpConnKey{}).(*httpConn); ok {
		return a.admitted
	}
	return listen.Admission{}
}

// serve serves the connections of a queue until stop.
func (c *clients) serve(q *listen.Queue) {
	tuned := wsconn.Tune(q, time.Duration(c.cfg.KeepaliveInterval), time.Duration(c.cfg.KeepaliveTimeout))
	_ = c.server.Serve(tuned) // returns when the server is closed
}

func (c *clients) serveWebsocket(ctx context.Context, caller auth.Caller, conn *wsconn.Conn) {
	c.serveTransport(ctx, caller.Principal.Name, ctx.Value(httpConnKey{}).(*httpConn).info, conn)
}

// serveStdio serves the standard streams, if they are a listener. The returned
// channel is closed when their client has disconnected and no other can connect;
// serving waits for it.
func (l *listeners) serveStdio(c *clients, serving *sync.WaitGroup) (left <-chan struct{}) {
	if l.stdio == nil {
		return nil
	}
	gone := make(chan struct{})
	serving.Go(func() {
		defer close(gone)
		c.serveTransport(context.Background(), l.stdio.principal, l.stdio.info, l.stdio.transport)
	})
	if !l.onlyStdio() {
		return nil
	}
	return gone
}

// serveTransport serves a client of a principal until its connection ends.
func (c *clients) serveTransport(ctx context.Context, principal string, info clientAuthInfo, transport jsonrpc.Transport) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	one := &clientConn{cancel: cancel, admitted: admittedOf(ctx)}
	defer one.admitted.OnEvict(func(why error) { cancel(why) })()
	c.add(one)
	defer c.remove(one)
	defer c.recovered(transport.Peer())
	// The gateway logs why it ended.
	_ = c.gateway.Serve(ctx, principal, &trackedConn{ClientConnInterface: c.upstream(info), clients: c, client: one}, transport)
}

// recovered confines a panic to the connection that caused it.
func (c *clients) recovered(peer string) {
	if panicked := recover(); panicked != nil {
		c.logger.Error("a JSON-RPC connection panicked", "peer", peer, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	}
}

func (c *clients) add(one *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[one] = struct{}{}
	c.metrics.live.Add(1)
	c.cancelIdle(one)
	c.notifyChange()
}

func (c *clients) remove(one *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, one)
	c.metrics.live.Add(-1)
	if c.stopping && len(c.live) == 0 {
		c.closeLeft()
	}
	c.notifyChange()
}

func (c *clients) notifyChange() {
	if c.changed != nil {
		c.changed()
	}
}

// addPending changes how much of a client stop waits for.
func (c *clients) addPending(one *clientConn, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.pending += change
	c.cancelIdle(one)
}

// cancelIdle disconnects a client for which stop need not wait, when stopping. mu is held.
func (c *clients) cancelIdle(one *clientConn) {
	if c.stopping && one.pending == 0 {
		one.cancel(errStopping)
	}
}
