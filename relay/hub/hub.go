// Package hub runs a hub of the relay: the rendezvous with listeners, credentials
// and presence as configured.
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

func duration(d config.Duration) time.Duration { return time.Duration(d) }

// Options are the options of a hub besides its configuration.
type Options struct {
	// Logger is the hub's log. Nil discards.
	Logger *slog.Logger
	// OnListen is called with the URL of each listener when it begins to accept,
	// with the port that the kernel chose. May be nil.
	OnListen func(url string)
}

// Hub is a hub, created by [New] and run by Serve.
type Hub struct {
	cfg           config.Hub
	opts          Options
	authenticator *authenticator
	logger        *slog.Logger
	urlKey        []byte // nil means a random one
}

// New returns a hub. It validates the configuration and reads the files that it
// names. A hub that is not served need not be closed.
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
	authenticator, err := newAuthenticator(cfg, opts.Logger)
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, opts: opts, authenticator: authenticator, logger: opts.Logger}
	if cfg.URLKey != "" {
		if h.urlKey, err = secretfile.Token(cfg.URLKey, auth.MinSecretBytes); err != nil {
			return nil, fmt.Errorf("failed to read url_key_file: %w", err)
		}
	}
	return h, nil
}

// HTTP limits before a connection is upgraded.
const (
	requestTimeout     = 10 * time.Second
	requestIdleTimeout = 60 * time.Second
	maxRequestHeader   = 64 << 10
)

// reservedThreads are started in advance: the Go runtime aborts the process when
// it cannot start a thread.
const reservedThreads = 32

// keepAliveProbes is how many keep-alive probes the kernel sends within
// keepalive_timeout.
const keepAliveProbes = 3

// stopTimeout bounds how long requests in progress may take when the hub stops.
const stopTimeout = 10 * time.Second

var errStopTakesLong = errors.New("requests are still in progress")

// Serve opens the listeners and serves until ctx ends. Then it informs both ends
// of all streams and returns nil when nothing is left. If a listener cannot be
// opened, Serve returns the error without serving. It must be called once.
func (h *Hub) Serve(ctx context.Context) error {
	syslimit.MakeThreads(reservedThreads)
	listeners, err := h.openAll(ctx)
	if err != nil {
		return err
	}
	presence, err := h.openPresence(ctx)
	if err != nil {
		closeAll(listeners)
		return err
	}
	router, err := rendezvous.New(rendezvous.Config{
		Limits: limitsOf(h.cfg), Presence: presence, Authenticate: h.authenticator.authenticate, Recall: h.authenticator.recall, Use: trackUse,
		Node: h.cfg.Node, PublicURL: h.cfg.PublicURL, URLKey: h.urlKey, Origins: h.cfg.Origins,
		PingInterval: duration(h.cfg.PingInterval), DeadAfter: duration(h.cfg.KeepaliveInterval + h.cfg.KeepaliveTimeout),
		Logger: h.logger,
	})
	if err != nil {
		closeAll(listeners)
		return errors.Join(err, presence.Close())
	}
	return h.serve(ctx, listeners, router)
}

// serve serves listeners until ctx ends or one of them fails, and closes
// everything.
func (h *Hub) serve(ctx context.Context, listeners []listener, router *rendezvous.Hub) error {
	server := h.newServer(router)
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		tuned := wsconn.Tune(l.Listener, net.KeepAliveConfig{
			Idle:     duration(h.cfg.KeepaliveInterval),
			Interval: max(duration(h.cfg.KeepaliveTimeout)/keepAliveProbes, time.Second),
			Count:    keepAliveProbes,
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

// newServer returns an HTTP server with bounds on headers in size and time. They
// do not apply after an upgrade to a websocket.
func (h *Hub) newServer(router http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, info, err := peerOf(r); err == nil {
				if info.HasTLS() {
					r.TLS = &info.State // hidden from net/http by the listener
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
