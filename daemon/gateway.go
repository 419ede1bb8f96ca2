package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/server"
)

// GatewayOptions is what a gateway needs beside its configuration.
type GatewayOptions struct {
	// Logger gets the gateway's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of every listener as it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
	// OnChange is called when a client has come or gone: when memory may have become free.
	// It must neither block nor use the gateway. Nil calls nothing.
	OnChange func()
}

// Gateway lets clients that speak JSON-RPC use a server elsewhere. All methods
// may be called concurrently.
type Gateway struct {
	cfg     config.Config
	opts    GatewayOptions
	opener  opener
	clients *clients
}

// NewGateway makes a gateway to the server that upstream is connected to, which
// stays the caller's and has to outlive it. If the configuration has a table of
// principals, each client is looked up in it and its calls are made on behalf of
// it, so that upstream has to allow that; otherwise all calls are made by
// whomever upstream takes the connection for. The configuration is checked first.
// A gateway that does not serve has nothing to be closed.
func NewGateway(cfg config.Config, upstream *grpc.ClientConn, opts GatewayOptions) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, raw := range cfg.Listen {
		switch url, err := listen.Parse(raw); {
		case err != nil:
			return nil, err
		case url.Scheme == listen.SchemeGRPC, url.Scheme == listen.SchemeGRPCS, url.Scheme == listen.SchemeUnix:
			return nil, &config.Error{Setting: "listen", Problem: fmt.Sprintf("has %s, where clients of gRPC come", url),
				Fix: "they use the upstream server itself; write ws://HOST:PORT, wss://HOST:PORT or stdio"}
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	keeper, err := newDoorkeeper(cfg, opts.Logger)
	if err != nil {
		return nil, err
	}
	served, err := newClients(clientsConfig{
		cfg: cfg, doorkeeper: keeper, logger: opts.Logger,
		upstream: func(info clientAuthInfo) grpc.ClientConnInterface {
			return &remoteCalls{ClientConnInterface: upstream, doorkeeper: keeper, info: info}
		},
		ready:   func() bool { return isReady(upstream) },
		changed: opts.OnChange,
	})
	if err != nil {
		return nil, err
	}
	return &Gateway{
		cfg: cfg, opts: opts, clients: served, opener: opener{cfg: cfg, doorkeeper: keeper, logger: opts.Logger},
	}, nil
}

// isReady reports whether a server answers at the other end, and tries again if
// it was given up.
func isReady(conn *grpc.ClientConn) bool {
	state := conn.GetState()
	if state == connectivity.Idle {
		conn.Connect()
	}
	return state == connectivity.Ready
}

// Serve opens the configured doors and serves until ctx ends. Then clients are
// disconnected, whose sessions the server keeps for their grace, and Serve
// returns nil. If a door cannot be opened nothing is served and the error says
// why. A client on the standard streams ends them for good; if they are the only
// door, Serve then returns nil.
func (g *Gateway) Serve(ctx context.Context) error {
	syslimit.MakeThreads(passerThreads)
	doors, err := g.opener.open(ctx)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	failed := make(chan error, len(doors.inOrder))
	for _, l := range doors.websocket {
		serving.Go(func() {
			if err := g.clients.serve(l); err != nil {
				failed <- fmt.Errorf("failed to serve %s: %w", l.URL(), err)
			}
		})
	}
	doors.tell(g.opts.OnListen)
	left := doors.serveStdio(g.clients, &serving)
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-left:
	}
	g.clients.refuse()
	g.clients.cutOff(errStopping)
	if stopErr := g.clients.stop(); stopErr != nil {
		return errors.Join(err, stopErr) // those who serve wait for what hangs
	}
	serving.Wait()
	return err
}

// remoteCalls are the calls of one client to a server elsewhere.
type remoteCalls struct {
	grpc.ClientConnInterface
	doorkeeper *doorkeeper
	info       clientAuthInfo
}

// Invoke implements grpc.ClientConnInterface.
func (r *remoteCalls) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, err := r.letOut(ctx, method, args)
	if err != nil {
		return err
	}
	return r.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (r *remoteCalls) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := r.letOut(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	return r.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// letOut says for whom a call is made, if the client may make it.
func (r *remoteCalls) letOut(ctx context.Context, method string, req any) (context.Context, error) {
	caller, err := r.doorkeeper.letIn(visitor{info: r.info})
	if err := server.MayCall(caller, err, method, req); err != nil {
		return nil, err
	}
	if r.doorkeeper.authenticator.HasTable() {
		ctx = metadata.AppendToOutgoingContext(ctx, onBehalfOfKey, caller.Principal.Name)
	}
	return ctx, nil
}
