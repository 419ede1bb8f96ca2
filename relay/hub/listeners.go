package hub

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// unadmittedBytes is what may come on a connection before somebody is let in on
// it: a handshake, and a few headers of the largest kind.
const unadmittedBytes = 4 * maxRequestHeader

const (
	example = "write for example http://127.0.0.1:7430 or https://0.0.0.0:7430"
	noTable = "say who is let in with principals_file, or listen on 127.0.0.1"
)

// listener is where executors and harnesses come.
type listener struct {
	net.Listener
	url string
}

// openAll opens all listeners or none. The error is a [*listen.Error] or of the
// files for TLS.
func (h *Hub) openAll(ctx context.Context) (opened []listener, err error) {
	locks := listen.Locks{
		WebsocketAuthenticated: h.keeper.authenticator.HasTable(),
		LoopbackUsers:          h.keeper.users,
		Unadmitted:             unadmittedBytes,
		Connections:            int(h.cfg.Connections),
		Full: func(listen.URL) {
			h.logger.Warn("a listener has as many connections as it may have, and closed one", "connections_per_listener", int(h.cfg.Connections))
		},
		AcceptFailed: func(u listen.URL, err error) {
			h.logger.Warn("a connection could not be accepted; accepting is retried, and further failures are not logged for a while",
				"listener", "http"+strings.TrimPrefix(u.String(), "ws"), "error", err)
		},
		HandshakeFailed: h.keeper.handshakeFailed,
	}
	for _, raw := range h.cfg.Listen {
		one, err := h.open(ctx, raw, &locks)
		if err != nil {
			for _, l := range opened {
				_ = l.Close()
			}
			return nil, err
		}
		opened = append(opened, one)
	}
	if h.keeper.users.AcceptsAny() {
		h.logger.Warn("loopback_users is any: every user of this host is accepted on loopback without a token")
	}
	return opened, nil
}

func (h *Hub) open(ctx context.Context, raw string, locks *listen.Locks) (listener, error) {
	u, err := parse(raw)
	if err != nil {
		return listener{}, err
	}
	switch {
	case u.Scheme == listen.SchemeWSS && locks.TLS == nil && h.cfg.TLSCertificate != "" && h.cfg.TLSKey != "":
		if locks.TLS, err = h.loadTLS(); err != nil {
			return listener{}, fmt.Errorf("failed to listen on %s: %w", raw, err)
		}
	case u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() && !h.cfg.HasPlainHTTP():
		return listener{}, &listen.Error{Kind: listen.KindNotLoopback, URL: raw,
			Problem: fmt.Sprintf("host %s is not a loopback address, and tokens would travel in plain text", u.Addr.Addr()),
			Fix:     "listen on https://, or set allow_http (--allow-http) if all of the network is trusted or a proxy ends TLS"}
	}
	l, err := listen.Listen(ctx, u, *locks)
	if err != nil {
		return listener{}, inWordsOfHTTP(err, raw)
	}
	if u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() {
		h.logger.Warn("tokens and everything else travel in plain text: use https://, unless all of the network is trusted or a proxy ends TLS", "listener", raw)
	}
	return listener{Listener: l, url: "http" + strings.TrimPrefix(l.URL().String(), "ws")}, nil
}

// parse reads https://HOST:PORT or http://HOST:PORT.
func parse(raw string) (listen.URL, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme != "http" && scheme != "https" {
		return listen.URL{}, &listen.Error{Kind: listen.KindMalformed, URL: raw, Problem: fmt.Sprintf("scheme %q is not http or https", scheme), Fix: example}
	}
	u, err := listen.Parse("ws" + strings.TrimPrefix(scheme, "http") + "://" + strings.TrimSuffix(rest, "/"))
	if err != nil {
		return listen.URL{}, inWordsOfHTTP(err, raw)
	}
	return u, nil
}

// inWordsOfHTTP returns an error about a listener for websockets as one about the
// URL that was asked for.
func inWordsOfHTTP(err error, raw string) error {
	typed, ok := err.(*listen.Error)
	if !ok {
		return err
	}
	about := *typed
	about.URL = raw
	switch about.Kind {
	case listen.KindMalformed:
		about.Fix = example
	case listen.KindUnauthenticated:
		about.Fix = noTable
	}
	return &about
}

// loadTLS reads what listeners with TLS are locked with.
func (h *Hub) loadTLS() (*listen.TLS, error) {
	if h.cfg.TLSClientCA == "" && h.keeper.authenticator.WantsCertificates() {
		h.logger.Warn("principals are listed by certificates, and none is asked for: set tls_client_ca_file")
	}
	files := listen.TLSFiles{Certificate: h.cfg.TLSCertificate, Key: h.cfg.TLSKey, ClientCA: h.cfg.TLSClientCA}
	return listen.LoadTLS(files, func(err error) {
		h.logger.Error("the keys for TLS cannot be read again; the old ones stay in use", "error", err)
	})
}

// limitsOf gives the rendezvous its part of the configuration.
func limitsOf(cfg config.Hub) rendezvousLimits {
	return rendezvousLimits{
		FrameBytes: int64(cfg.Frame), QueueBytes: int64(cfg.Queue), PlainQueueBytes: int64(cfg.PlainQueue),
		ConnectionQueueBytes: int64(cfg.ConnectionQueue), TotalQueueBytes: int64(cfg.TotalQueue), MinIncomingRate: int64(cfg.IncomingRate),
		Connections: int(cfg.PrincipalConnections), StreamsPerConnection: int(cfg.ConnectionStreams),
		StreamsPerPrincipal: int(cfg.PrincipalStreams), StreamsPerExecutor: int(cfg.ExecutorStreams), Executors: int(cfg.Executors), ExecutorsPerPrincipal: int(cfg.PrincipalExecutors),
		StreamGrace: duration(cfg.StreamGrace), StreamIdle: duration(cfg.StreamIdle), URLLifetime: duration(cfg.URLLifetime),
		ExecutorRetention: duration(cfg.ExecutorRetention), PresenceInterval: duration(cfg.PresenceInterval),
	}
}
