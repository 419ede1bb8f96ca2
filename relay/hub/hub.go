// Package hub is a hub of the relay that can be run: the rendezvous behind
// listeners, with credentials, and executors' presence where the configuration
// says.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/rendezvous"
)

type rendezvousLimits = rendezvous.Limits

func duration(d config.Duration) time.Duration { return time.Duration(d) }

// Options are what a hub needs beside its configuration.
type Options struct {
	// Logger gets the hub's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of every listener as it begins to accept,
	// with the port that the kernel chose. Nil calls nothing.
	OnListen func(url string)
}

// Hub is a hub that has not been served, or is served. [New] makes one.
type Hub struct {
	cfg    config.Hub
	opts   Options
	keeper *keeper
	logger *slog.Logger
	urlKey []byte // nil is a random one
}

// New returns a hub. The configuration is checked first, and the files that it
// names are read. A hub that does not serve has nothing to be closed.
func New(cfg config.Hub, opts Options) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, raw := range cfg.Listen {
		if _, err := parse(raw); err != nil {
			return nil, err
		}
	}
	keeper, err := newKeeper(cfg, opts.Logger)
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, opts: opts, keeper: keeper, logger: opts.Logger}
	if cfg.URLKey != "" {
		if h.urlKey, err = secretfile.Token(cfg.URLKey, auth.MinSecretBytes); err != nil {
			return nil, fmt.Errorf("failed to read url_key_file: %w", err)
		}
	}
	return h, nil
}

// Limits of HTTP before a connection is a websocket.
const (
	requestTimeout     = 10 * time.Second
	requestIdleTimeout = 60 * time.Second
	maxRequestHeader   = 64 << 10
)

// threads are made in advance: the runtime ends a program that needs one when the system
// has none left.
const threads = 32

// keepAliveQuestions is how often the kernel asks within keepalive_timeout.
const keepAliveQuestions = 3

// stopTimeout bounds how long requests that are being answered may take when the
// hub stops.
const stopTimeout = 10 * time.Second

var errStopTakesLong = errors.New("requests are still being answered")

// Serve opens the listeners and serves until ctx ends. Then both ends of what is
// routed are told, and Serve returns nil when nothing is left. If a listener
// cannot be opened nothing is served and the error says why. It is called once.
func (h *Hub) Serve(ctx context.Context) error {
	syslimit.MakeThreads(threads)
	listeners, err := h.openAll(ctx)
	if err != nil {
		return err
	}
	closeAll := func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	presence, err := h.openPresence(ctx)
	if err != nil {
		closeAll()
		return err
	}
	router, err := rendezvous.New(rendezvous.Config{
		Limits: limitsOf(h.cfg), Presence: presence, Authenticate: h.keeper.authenticate, Recall: h.keeper.recall, Use: use,
		Node: h.cfg.Node, PublicURL: h.cfg.PublicURL, URLKey: h.urlKey, Origins: h.cfg.Origins,
		PingInterval: duration(h.cfg.PingInterval), DeadAfter: duration(h.cfg.KeepaliveInterval + h.cfg.KeepaliveTimeout),
		Logger: h.logger,
	})
	if err != nil {
		closeAll()
		return errors.Join(err, presence.Close())
	}
	return h.serve(ctx, listeners, router)
}

// serve serves listeners until ctx ends or one of them fails, and closes all.
func (h *Hub) serve(ctx context.Context, listeners []listener, router *rendezvous.Hub) error {
	server := h.newServer(router)
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		tuned := wsconn.Tune(l.Listener, wsconn.Tuning{
			KeepAliveIdle:     duration(h.cfg.KeepaliveInterval),
			KeepAliveInterval: max(duration(h.cfg.KeepaliveTimeout)/keepAliveQuestions, time.Second),
			KeepAliveCount:    keepAliveQuestions,
		})
		serving.Go(func() {
			if err := server.Serve(tuned); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("failed to serve %s: %w", l.url, err)
			}
		})
		if h.opts.OnListen != nil {
			h.opts.OnListen(l.url)
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	err = errors.Join(err, router.Close())
	stopping, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errStopTakesLong)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	serving.Wait()
	return err
}

// newServer returns a server that nobody can hold up: headers are bounded in size
// and time. The limits do not touch a connection that has become a websocket.
func (h *Hub) newServer(router http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, info, err := arrival(r); err == nil {
				if secure, ok := info.(listen.TLSAuthInfo); ok {
					r.TLS = &secure.State // which the listener hides from net/http
				}
			}
			router.ServeHTTP(w, r)
		}),
		ConnContext: withConn,
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateActive {
				listen.Begin(conn)
			}
		},
		Protocols:         &protocols,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       requestIdleTimeout,
		MaxHeaderBytes:    maxRequestHeader,
		ErrorLog:          slog.NewLogLogger(h.logger.Handler(), slog.LevelDebug),
	}
}
