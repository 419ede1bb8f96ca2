package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/syslimit"
)

// ForwardOptions are the options of a forward beside its configuration.
type ForwardOptions struct {
	// Logger is the forward's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of every listener when it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
}

// Forward accepts gRPC clients and passes bytes between them and another server,
// without parsing them. With it, clients that only speak gRPC reach executors behind
// a relay.
type Forward struct {
	cfg    config.Config
	opts   ForwardOptions
	users  auth.LoopbackUsers
	server *client.Transport
	linger time.Duration // forwardLinger
}

// NewForward creates a forward to the server of the transport. Listeners must be unix
// sockets or on loopback, where processes of loopback_users use the server as the
// owner of the forward; others are a [*config.Error]. Of the other settings only
// connections_per_listener applies. A forward that does not serve need not be closed.
func NewForward(cfg config.Config, server *client.Transport, opts ForwardOptions) (*Forward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, raw := range cfg.Listen {
		switch url, err := listen.Parse(raw); {
		case err != nil:
			return nil, err
		case url.Scheme != listen.SchemeTCP && url.Scheme != listen.SchemeGRPC && url.Scheme != listen.SchemeUnix:
			return nil, &config.Error{Setting: "listen", Problem: fmt.Sprintf("has %s, which is not for clients of gRPC on this host", url),
				Fix: "write unix:///PATH or tcp://127.0.0.1:PORT"}
		}
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	users, err := loopbackUsers(cfg)
	if err != nil {
		return nil, err
	}
	return &Forward{cfg: cfg, opts: opts, users: users, server: server, linger: forwardLinger}, nil
}

// Serve opens the listeners, connects to the server for each client, and passes bytes
// until ctx ends. Then it closes all connections and returns nil. If a listener
// cannot be opened, it serves nothing and returns the error. A connection to the
// server that fails only ends the connection of its client.
func (f *Forward) Serve(ctx context.Context) error {
	syslimit.MakeThreads(forwardThreads)
	open, err := opener{cfg: f.cfg, users: f.users, logger: f.opts.Logger, confined: confinement.CheckPeer}.open(ctx)
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	refuser := newRefusingServer(time.Duration(f.cfg.HandshakeTimeout))
	serving.Go(refuser.serve)
	// HTTP is not forwarded: the server would apply its rules for web pages to the names
	// and addresses of this listener.
	queue := listen.NewQueue()
	open.dispatch(queue, nil, &serving)
	serving.Go(func() {
		for {
			conn, err := queue.Accept()
			if err != nil {
				return
			}
			if refusal := refusedPeer(conn); refusal != nil {
				f.opts.Logger.Warn("a client was refused", "listener", conn.LocalAddr().String(), "error", refusal.Error())
				refuser.refuse(conn)
				continue
			}
			serving.Go(func() { f.passAdmitted(running, conn) })
		}
	})
	open.announce(f.opts.OnListen)
	<-ctx.Done()
	end(errStopping)
	open.close()
	_ = queue.Close()
	refuser.stop()
	serving.Wait()
	return nil
}
