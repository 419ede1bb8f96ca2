package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/server"
)

// GatewayOptions are the options of a gateway beside its configuration.
type GatewayOptions struct {
	// Logger is the gateway's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of every listener when it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
	// OnChange is called when a client has connected or disconnected, so that memory
	// may have become free. It must neither block nor use the gateway. Nil calls
	// nothing.
	OnChange func()
	// LoadConfig loads the configuration for [Gateway.Reload]. Nil keeps the settings.
	LoadConfig func() (config.Config, error)
}

// Gateway serves clients of JSON-RPC and HTTP by a server elsewhere. All methods may be
// called concurrently.
type Gateway struct {
	opts    GatewayOptions
	opener  opener
	clients *clients

	reloading sync.Mutex    // held by Reload, and while the listeners are opened
	cfg       config.Config // guarded by reloading
	listeners *listeners    // guarded by reloading; nil before Serve
}

// NewGateway creates a gateway to the server of upstream, which remains the caller's
// and must outlive the gateway. If the configuration has a table of principals, each
// client is looked up in it and its calls are made on its behalf, which the server
// must allow; otherwise all calls are made as the principal of upstream. NewGateway
// validates the configuration. A gateway that does not serve need not be closed.
func NewGateway(cfg config.Config, upstream *grpc.ClientConn, opts GatewayOptions) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, raw := range cfg.Listen {
		switch url, err := listen.Parse(raw); {
		case err != nil:
			return nil, err
		case url.Scheme == listen.SchemeGRPC, url.Scheme == listen.SchemeGRPCS:
			return nil, &config.Error{Setting: "listen", Problem: fmt.Sprintf("has %s, where clients of gRPC come", url),
				Fix: "they use the upstream server itself; write tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH, ws://HOST:PORT, wss://HOST:PORT or stdio"}
		}
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	counts := newServerMetrics("")
	authenticator, err := newAuthenticator(cfg, opts.Logger, counts)
	if err != nil {
		return nil, err
	}
	served, err := newClients(clientsConfig{
		cfg: cfg, authenticator: authenticator, logger: opts.Logger,
		upstream: func(info clientAuthInfo) grpc.ClientConnInterface {
			return &remoteCalls{ClientConnInterface: upstream, authenticator: authenticator, info: info}
		},
		ready:   func() bool { return isReady(upstream) },
		metrics: counts,
		changed: opts.OnChange,
	})
	if err != nil {
		return nil, err
	}
	return &Gateway{
		cfg: cfg, opts: opts, clients: served,
		opener: opener{cfg: cfg, authenticator: authenticator, users: authenticator.users, logger: opts.Logger, confined: confinement.CheckPeer},
	}, nil
}

// isReady reports whether upstream is connected, and reconnects it if it is idle.
func isReady(conn *grpc.ClientConn) bool {
	state := conn.GetState()
	if state == connectivity.Idle {
		conn.Connect()
	}
	return state == connectivity.Ready
}

// Serve opens the listeners and serves until ctx ends. Then it disconnects the
// clients, whose sessions the server keeps for their grace period, and returns nil.
// If a listener cannot be opened, it serves nothing and returns the error. The
// standard streams serve a single client; if they are the only listener, Serve
// returns nil when that disconnects.
func (g *Gateway) Serve(ctx context.Context) error {
	syslimit.MakeThreads(forwardThreads)
	open, err := g.open(ctx)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	queue := listen.NewQueue()
	serving.Go(func() { g.clients.serve(queue) })
	open.dispatch(nil, queue, &serving)
	open.announce(g.opts.OnListen)
	left := open.serveStdio(g.clients, &serving)
	select {
	case <-ctx.Done():
	case <-left:
	}
	open.closeNetwork()
	g.clients.refuse()
	g.clients.disconnectAll(errStopping)
	if err := g.clients.stop(); err != nil {
		return err // the serving goroutines wait for connections that hang
	}
	serving.Wait()
	return nil
}

// open opens the listeners.
func (g *Gateway) open(ctx context.Context) (opened *listeners, err error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	opener := g.opener
	opener.cfg = g.cfg
	g.listeners, err = opener.open(ctx)
	return g.listeners, err
}

// Reload reads the configuration again by [GatewayOptions.LoadConfig], and the files that
// settings name, as [Daemon.Reload] does. The connection to the server stays.
func (g *Gateway) Reload() ([]ConfigChange, error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	next, changes, err := reloaded(g.cfg, g.opts.LoadConfig, g.prepare)
	g.cfg = next
	return logReload(g.opts.Logger, changes, err)
}

// prepare reads and checks everything that a configuration needs. apply puts it in use.
// reloading is held.
func (g *Gateway) prepare(cfg config.Config) (apply func(), err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	authenticate, err := g.opener.authenticator.prepare(cfg)
	if err != nil {
		return nil, err
	}
	opener := g.opener
	opener.cfg = cfg
	identify, err := g.listeners.prepareTLS(opener)
	if err != nil {
		return nil, err
	}
	return func() {
		authenticate()
		identify()
		g.listeners.setConnections(int(cfg.Connections))
		g.clients.configure(cfg)
	}, nil
}

// remoteCalls makes the calls of one client to a server elsewhere.
type remoteCalls struct {
	grpc.ClientConnInterface
	authenticator *authenticator
	info          clientAuthInfo
}

// Invoke implements grpc.ClientConnInterface.
func (r *remoteCalls) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, err := r.authorize(ctx, method, args)
	if err != nil {
		return err
	}
	return r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (r *remoteCalls) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := r.authorize(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	return r.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// authorize checks that the client may make a call, and adds its name to the context.
func (r *remoteCalls) authorize(ctx context.Context, method string, req any) (context.Context, error) {
	if server.IsPublic(method) { // it needs no caller
		return ctx, nil
	}
	caller, err := r.authenticator.authenticatePeer(peerInfo{info: r.info})
	if err := server.MayCall(caller, err, method, req); err != nil {
		return nil, err
	}
	if r.authenticator.principals.HasTable() {
		ctx = metadata.AppendToOutgoingContext(ctx, onBehalfOfKey, caller.Principal.Name)
	}
	return ctx, nil
}
