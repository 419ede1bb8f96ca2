package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/syslimit"
)

// ForwardOptions is what a forward needs beside its configuration.
type ForwardOptions struct {
	// Logger gets the forward's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of every listener as it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
}

// Forward accepts clients of gRPC and passes what they and a server elsewhere say
// to each other, without reading it: so that those who know gRPC alone reach
// executors behind a relay.
type Forward struct {
	cfg    config.Config
	opts   ForwardOptions
	users  auth.LoopbackUsers
	server *client.Transport
	linger time.Duration // forwardLinger
}

// NewForward makes a forward to the server of the transport. The listeners of the
// configuration have to be unix sockets, which nobody else can use, or on loopback,
// where the processes of loopback_users use the server as the owner of the forward;
// others are a [*config.Error]. Of the other settings connections_per_listener
// counts. A forward that does not serve has nothing to be closed.
func NewForward(cfg config.Config, server *client.Transport, opts ForwardOptions) (*Forward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, raw := range cfg.Listen {
		switch url, err := listen.Parse(raw); {
		case err != nil:
			return nil, err
		case url.Scheme != listen.SchemeGRPC && url.Scheme != listen.SchemeUnix:
			return nil, &config.Error{Setting: "listen", Problem: fmt.Sprintf("has %s, which is not for clients of gRPC on this host", url),
				Fix: "write unix:///PATH or grpc://127.0.0.1:PORT"}
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	users, err := loopbackUsers(cfg)
	if err != nil {
		return nil, err
	}
	return &Forward{cfg: cfg, opts: opts, users: users, server: server, linger: forwardLinger}, nil
}

// Serve opens the listeners, connects to the server for each client that comes, and
// passes bytes until ctx ends. Then it closes all connections and returns nil. If a
// listener cannot be opened nothing is served and the error says why. A connection
// to the server that is lost, or does not come about, ends the one of its client
// and no other; clients connect again when they like.
func (f *Forward) Serve(ctx context.Context) error {
	syslimit.MakeThreads(passerThreads)
	doors, err := f.open(ctx)
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	refuser := newRefuser()
	serving.Go(refuser.serve)
	failed := make(chan error, len(doors.inOrder))
	for _, l := range doors.inOrder {
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					failed <- fmt.Errorf("failed to serve %s: %w", l.URL(), err)
					return
				}
				if refusal := refusedPeer(conn); refusal != nil {
					f.opts.Logger.Warn("a client was refused", "listener", l.URL().String(), "error", refusal.Error())
					refuser.refuse(conn)
					continue
				}
				serving.Go(func() { f.passPlaced(running, conn) })
			}
		})
	}
	doors.tell(f.opts.OnListen)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	end(errStopping)
	doors.close()
	refuser.stop()
	serving.Wait()
	return err
}

// open opens all listeners or none.
func (f *Forward) open(ctx context.Context) (*doors, error) {
	logs := opener{cfg: f.cfg, logger: f.opts.Logger}
	locks := listen.Locks{
		LoopbackUsers: f.users,
		Unadmitted:    unadmittedHeaders * int(f.cfg.HeaderList),
		Connections:   int(f.cfg.Connections),
		Full:          logs.tellFull(),
		AcceptFailed:  logs.logAcceptFailed,
	}
	opened := &doors{}
	for _, raw := range f.cfg.Listen {
		url, err := listen.Parse(raw)
		if err == nil {
			var l listen.Listener
			if l, err = listen.Listen(ctx, url, locks); err == nil {
				opened.inOrder = append(opened.inOrder, l)
			}
		}
		if err != nil {
			opened.close()
			return nil, err
		}
	}
	warnOfAnyUser(f.opts.Logger, f.users, opened.inOrder)
	return opened, nil
}
