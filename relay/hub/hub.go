// Package hub runs a hub of the relay: the rendezvous with listeners, credentials
// and presence as configured.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/buildinfo"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/syslimit"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/preview"
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
	// OnReady is called once, when all listeners accept. May be nil.
	OnReady func()
	// Version is a label of the metrics. Empty is "devel".
	Version string
	// Inherited are listening sockets that the program was started with, for example by
	// systemd. A listener of the configuration with the address of one uses it. One
	// that no listener uses is an error. Serve closes them, unless it returns an error.
	Inherited []net.Listener
}

// Hub is a hub, created by [New] and run by Serve.
type Hub struct {
	cfg           config.Hub // at the start
	opts          Options
	authenticator *authenticator
	logger        *slog.Logger
	tracer        *tracing.Tracer // nil: none; opened by Serve
	metrics       *hubMetrics
	hosts         atomic.Pointer[listen.Hosts]
	urlKey        []byte              // nil means a random one
	audit         *rendezvous.Auditor // nil: there is no audit log

	reloading sync.Mutex  // held by Reload, and while the listeners are opened
	effective config.Hub  // guarded by reloading; the configuration after changes
	tls       *listen.TLS // guarded by reloading; nil if no listener has TLS
	listeners []listener  // guarded by reloading; nil before Serve
}

// New returns a hub. It validates the configuration and reads the files that it
// names. A hub that is not served need not be closed.
func New(cfg config.Hub, opts Options) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	for _, raw := range cfg.Listen {
		if _, err := parse(raw); err != nil {
			return nil, err
		}
	}
	counts := newHubMetrics(cmp.Or(opts.Version, "devel"))
	authenticator, err := newAuthenticator(cfg, opts.Logger, counts)
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, effective: cfg, opts: opts, authenticator: authenticator, logger: opts.Logger, metrics: counts}
	h.setHosts(cfg)
	if cfg.URLKey != "" {
		if h.urlKey, err = secretfile.Token(cfg.URLKey, auth.MinSecretBytes); err != nil {
			return nil, fmt.Errorf("failed to read url_key_file: %w", err)
		}
	}
	if _, err := readClientSecret(cfg); err != nil {
		return nil, err
	}
	if h.audit, err = openAudit(cfg, opts.Logger); err != nil {
		return nil, err
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

// stopTimeout bounds how long requests in progress may take when the hub stops.
const stopTimeout = 10 * time.Second

var errStopTakesLong = errors.New("requests are still in progress")

// Serve opens the listeners and serves until ctx ends. Then it informs both ends
// of all streams and returns nil when nothing is left. If a listener cannot be
// opened, Serve returns the error without serving. It must be called once.
func (h *Hub) Serve(ctx context.Context) error {
	if h.audit != nil {
		defer h.audit.Log.Close()
	}
	syslimit.MakeThreads(reservedThreads)
	listeners, err := h.openAll(ctx)
	if err != nil {
		return err
	}
	h.tracer, err = tracing.Open(tracing.Options{
		Endpoint: h.cfg.OTLPEndpoint, CA: h.cfg.OTLPCA, Headers: h.cfg.OTLPHeaders, Service: "execwire-hub", Version: buildinfo.Get().Version,
		Environ: os.Environ(), Logger: h.logger,
	})
	if err != nil {
		closeAll(listeners)
		return err
	}
	defer h.tracer.Close()
	presence, err := h.openPresence(ctx)
	if err != nil {
		closeAll(listeners)
		return err
	}
	var router *rendezvous.Hub // set before anything is served
	previews := preview.New(preview.Config{
		Domain: h.cfg.PreviewDomain, PublicURL: h.cfg.PublicURL, Limits: previewLimitsOf(h.cfg),
		Reachable: func(ctx context.Context, executor string) error { return router.Reachable(ctx, executor) },
		Open: func(ctx context.Context, principal, executor string) (net.Conn, error) {
			return h.openAudited(ctx, router, "preview.connect", principal, executor)
		},
		Reject: func(w http.ResponseWriter, r *http.Request, executor string, err error) {
			router.Reject(w, r, executor, err)
		},
		Authenticate: h.authenticator.authenticatePreview, Recall: h.authenticator.recall, Use: trackUse,
		Audit: h.audit, Logger: h.logger,
	})
	router, err = rendezvous.New(rendezvous.Config{
		Limits: limitsOf(h.cfg), Presence: presence, Authenticate: h.authenticator.authenticate, Recall: h.authenticator.recall, Use: trackUse,
		Node: h.cfg.Node, PublicURL: h.cfg.PublicURL, URLKey: h.urlKey, Origins: h.cfg.Origins,
		HostKnown: func(r *http.Request) bool { return h.hosts.Load().Know(connOf(r), r.Host) }, Calls: previews.Calls(), Metrics: h.metrics.set.Handler(),
		OnRefuse: h.metrics.refused, OnLimit: h.metrics.limitHit,
		PingInterval: duration(h.cfg.PingInterval), DeadAfter: duration(h.cfg.KeepaliveInterval + h.cfg.KeepaliveTimeout),
		Audit: h.audit, Logger: h.logger,
	})
	if err != nil {
		closeAll(listeners)
		return errors.Join(err, presence.Close())
	}
	h.metrics.begin(router, previews, h.audit)
	return h.serve(ctx, listeners, router, previews, h.newConsole(router))
}

// serve serves listeners until ctx ends, and closes everything.
func (h *Hub) serve(ctx context.Context, listeners []listener, router *rendezvous.Hub, previews *preview.Previews, console *hubConsole) error {
	server := h.newServer(router, previews, console)
	queue := listen.NewQueue()
	tuned := wsconn.Tune(queue, duration(h.cfg.KeepaliveInterval), duration(h.cfg.KeepaliveTimeout))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(tuned) }) // returns when the server is closed
	for _, l := range listeners {
		serving.Go(func() { l.Dispatch(nil, queue) })
		if h.opts.OnListen != nil {
			h.opts.OnListen(l.url)
		}
	}
	if h.opts.OnReady != nil {
		h.opts.OnReady()
	}
	<-ctx.Done()
	previews.Close() // first: executors are told that its streams end
	console.close()
	err := router.Close()
	closeAll(listeners)
	stopping, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errStopTakesLong)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	serving.Wait()
	return err
}

// newServer returns an HTTP server with bounds on headers in size and time. They
// do not apply after an upgrade to a websocket, and previews have others.
func (h *Hub) newServer(router *rendezvous.Hub, previews *preview.Previews, console *hubConsole) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: h.tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, info, err := peerOf(r); err == nil {
				if info.HasTLS() {
					r.TLS = &info.State // hidden from net/http by the listener
				}
			}
			if previews.Serves(r.Host) {
				tracing.FromContext(r.Context()).SetName("preview")
				previews.ServeHTTP(w, r)
				return
			}
			if console.serves(r) {
				tracing.FromContext(r.Context()).SetName("console")
				console.ServeHTTP(w, r)
				return
			}
			router.ServeHTTP(w, r)
		})),
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
