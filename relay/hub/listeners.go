package hub

import (
	"context"
	"fmt"
	"strings"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/relay/preview"
	"github.com/execwire/execwire/relay/rendezvous"
)

// unauthenticatedBytes bounds what a connection may send before a request is
// authenticated: a handshake, and a few headers of maximum size.
const unauthenticatedBytes = 4 * maxRequestHeader

const (
	fixURL     = "write for example http://127.0.0.1:7430 or https://0.0.0.0:7430"
	fixNoTable = "configure principals_file, or listen on 127.0.0.1"
)

// listener accepts connections of executors and harnesses.
type listener struct {
	listen.Listener
	url string
}

func closeAll(listeners []listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// openAll opens all listeners or none. The error is a [*listen.Error] or about
// the TLS files.
func (h *Hub) openAll(ctx context.Context) (opened []listener, err error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	opts := listen.Options{
		WebsocketAuthenticated: h.authenticator.principals.HasTable(),
		LoopbackUsers:          h.authenticator.users,
		Confined:               confinement.CheckPeer,
		UnauthenticatedBytes:   unauthenticatedBytes,
		Connections:            int(h.cfg.Connections),
		Inherited:              h.opts.Inherited,
		Full: func(_ listen.URL, limit int) {
			h.metrics.limitHit("connections_per_listener")
			h.logger.Warn("a listener closed a connection: its limit is reached", "connections_per_listener", limit)
		},
		AcceptFailed: func(u listen.URL, err error) {
			h.logger.Warn("failed to accept a connection; retrying, and suppressing further failures for a while",
				"listener", "http"+strings.TrimPrefix(u.String(), "ws"), "error", err)
		},
		HandshakeFailed: h.authenticator.handshakeFailed,
	}
	for _, raw := range h.cfg.Listen {
		one, err := h.open(ctx, raw, &opts)
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, one)
	}
	if err := listen.CheckInherited(h.opts.Inherited, opened); err != nil {
		closeAll(opened)
		return nil, err
	}
	h.listeners = opened
	if h.authenticator.users.AcceptsAny() {
		h.logger.Warn("loopback_users is any: every user of this host is accepted on loopback without a token")
	}
	return opened, nil
}

// open opens one listener. reloading is held.
func (h *Hub) open(ctx context.Context, raw string, opts *listen.Options) (listener, error) {
	u, err := parse(raw)
	if err != nil {
		return listener{}, err
	}
	switch {
	case u.Scheme == listen.SchemeWSS && opts.TLS == nil && h.cfg.TLSCertificate != "" && h.cfg.TLSKey != "":
		if opts.TLS, err = h.loadTLS(h.effective); err != nil {
			return listener{}, fmt.Errorf("failed to listen on %s: %w", raw, err)
		}
		h.tls = opts.TLS
	case u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() && !h.cfg.HasPlainHTTP():
		return listener{}, &listen.Error{Kind: listen.KindNotLoopback, URL: raw,
			Problem: fmt.Sprintf("host %s is not a loopback address, and tokens would be sent in plain text", u.Addr.Addr()),
			Fix:     "listen on https://, or set allow_http (--allow-http) if the network is trusted or a proxy terminates TLS"}
	}
	l, err := listen.Listen(ctx, u, *opts)
	if err != nil {
		return listener{}, asHTTPError(err, raw)
	}
	if u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() {
		h.logger.Warn("tokens and data are sent in plain text: use https://, unless the network is trusted or a proxy terminates TLS", "listener", raw)
	}
	return listener{Listener: l, url: "http" + strings.TrimPrefix(l.URL().String(), "ws")}, nil
}

// parse parses https://HOST:PORT or http://HOST:PORT.
func parse(raw string) (listen.URL, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme != "http" && scheme != "https" {
		return listen.URL{}, &listen.Error{Kind: listen.KindMalformed, URL: raw, Problem: fmt.Sprintf("scheme %q is not http or https", scheme), Fix: fixURL}
	}
	u, err := listen.Parse("ws" + strings.TrimPrefix(scheme, "http") + "://" + strings.TrimSuffix(rest, "/"))
	if err != nil {
		return listen.URL{}, asHTTPError(err, raw)
	}
	return u, nil
}

// asHTTPError rewrites an error about a websocket listener for the http or https
// URL that was configured.
func asHTTPError(err error, raw string) error {
	typed, ok := err.(*listen.Error)
	if !ok {
		return err
	}
	rewritten := *typed
	rewritten.URL = raw
	switch rewritten.Kind {
	case listen.KindMalformed:
		rewritten.Fix = fixURL
	case listen.KindUnauthenticated:
		rewritten.Fix = fixNoTable
	}
	return &rewritten
}

// loadTLS loads the TLS configuration of the listeners.
func (h *Hub) loadTLS(cfg config.Hub) (*listen.TLS, error) {
	if cfg.TLSClientCA == "" && h.authenticator.principals.WantsCertificates() {
		h.logger.Warn("the table of principals has certificates, but no client certificate is requested: set tls_ca")
	}
	files := listen.TLSFiles{Certificate: cfg.TLSCertificate, Key: cfg.TLSKey, ClientCA: cfg.TLSClientCA}
	return listen.LoadTLS(files, func(err error) {
		h.logger.Error("failed to reload the TLS keys; the previous ones stay in use", "error", err)
	})
}

// limitsOf returns the limits of the rendezvous.
func limitsOf(cfg config.Hub) rendezvous.Limits {
	return rendezvous.Limits{
		FrameBytes: int64(cfg.Frame), QueueBytes: int64(cfg.Queue), PlainQueueBytes: int64(cfg.PlainQueue),
		ConnectionQueueBytes: int64(cfg.ConnectionQueue), TotalQueueBytes: int64(cfg.TotalQueue), MinIncomingRate: int64(cfg.IncomingRate),
		Connections: int(cfg.PrincipalConnections), StreamsPerConnection: int(cfg.ConnectionStreams),
		StreamsPerPrincipal: int(cfg.PrincipalStreams), StreamsPerExecutor: int(cfg.ExecutorStreams), Executors: int(cfg.Executors), ExecutorsPerPrincipal: int(cfg.PrincipalExecutors),
		StreamGrace: duration(cfg.StreamGrace), StreamIdle: duration(cfg.StreamIdle), URLLifetime: duration(cfg.URLLifetime),
		ExecutorRetention: duration(cfg.ExecutorRetention), PresenceInterval: duration(cfg.PresenceInterval),
	}
}

// previewLimitsOf returns the limits of previews.
func previewLimitsOf(cfg config.Hub) preview.Limits {
	return preview.Limits{
		LinkLifetime: duration(cfg.PreviewLinkLifetime), LinksPerPrincipal: int(cfg.PreviewLinks),
		ConnectionsPerPort: int(cfg.PreviewPortConnections), ConnectionsPerExecutor: int(cfg.PreviewExecutorConnections),
	}
}
