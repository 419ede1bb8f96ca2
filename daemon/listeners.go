package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/listen"
)

// opener opens listeners.
type opener struct {
	cfg           config.Config
	inherited     []net.Listener // see [listen.Options]
	taken         *listen.Taken  // see [listen.Options]
	authenticator *authenticator // nil: clients are not authenticated
	users         auth.LoopbackUsers
	logger        *slog.Logger
	// confined is [listen.Options.Confined].
	confined func(confinement.Peer) error
}

// listeners are the open listeners.
type listeners struct {
	inOrder []listen.Listener // in the configured order
	stdio   *stdioClient      // nil if stdio is not configured
	tls     *listen.TLS       // nil if no listener has TLS
}

// setConnections changes the limit of connections of each listener; nil is no listener.
func (l *listeners) setConnections(limit int) {
	if l != nil {
		for _, one := range l.inOrder {
			one.SetConnections(limit)
		}
	}
}

// prepareTLS reads the keys of listeners with TLS again. apply puts them in use for
// connections that begin later.
func (l *listeners) prepareTLS(o opener) (apply func(), err error) {
	if l == nil || l.tls == nil {
		return func() {}, nil
	}
	next, err := o.loadTLS()
	if err != nil {
		return nil, fmt.Errorf("tls_cert, tls_key or tls_ca: %w", err)
	}
	return func() { l.tls.Replace(next) }, nil
}

// stdioClient is the client at the other end of the standard streams.
type stdioClient struct {
	transport *jsonrpc.Stdio
	principal string
	info      clientAuthInfo
}

// onlyStdio reports whether stdio is the only listener.
func (l *listeners) onlyStdio() bool { return l.stdio != nil && len(l.inOrder) == 0 }

// dispatch delivers connections of all listeners to the queues until close, in
// goroutines of serving. A nil queue is that of a protocol that is not served.
func (l *listeners) dispatch(grpc, http *listen.Queue, serving *sync.WaitGroup) {
	for _, one := range l.inOrder {
		serving.Go(func() { one.Dispatch(grpc, http) })
	}
}

// announce calls onListen, unless it is nil, with the URL of each listener.
func (l *listeners) announce(onListen func(url string)) {
	if onListen == nil {
		return
	}
	for _, one := range l.inOrder {
		onListen(one.URL().String())
	}
}

// pause stops accepting clients. The kernel queues them until resume.
func (l *listeners) pause() error {
	var errs []error
	for _, one := range l.inOrder {
		errs = append(errs, one.Pause())
	}
	return errors.Join(errs...)
}

// disconnect closes the connections of all clients.
func (l *listeners) disconnect() {
	for _, one := range l.inOrder {
		one.Disconnect()
	}
}

// resume accepts clients again.
func (l *listeners) resume() error {
	var errs []error
	for _, one := range l.inOrder {
		errs = append(errs, one.Resume())
	}
	return errors.Join(errs...)
}

// closeNetwork closes all listeners but the standard streams. It may be called again.
func (l *listeners) closeNetwork() {
	for _, one := range l.inOrder {
		_ = one.Close()
	}
}

// close closes all listeners.
func (l *listeners) close() {
	l.closeNetwork()
	if l.stdio != nil {
		_ = l.stdio.transport.Close(0, "")
	}
}

// open opens all configured listeners or none.
func (o opener) open(ctx context.Context) (*listeners, error) {
	opened := &listeners{}
	opts := listen.Options{
		HandshakeTimeout:     time.Duration(o.cfg.HandshakeTimeout),
		LoopbackUsers:        o.users,
		Inherited:            o.inherited,
		Taken:                o.taken,
		Confined:             o.confined,
		UnauthenticatedBytes: unauthenticatedHeaders * int(o.cfg.HeaderList),
		Connections:          int(o.cfg.Connections),
		Full:                 o.logFull(),
		AcceptFailed:         o.logAcceptFailed,
	}
	if a := o.authenticator; a != nil {
		opts.Authenticated = a.principals.HasTable()
		opts.WebsocketAuthenticated = !a.ignoresTokens()
		opts.HandshakeFailed = a.handshakeFailed
	}
	defer func() { _ = o.taken.Close() }() // of listeners that are not configured any more
	for _, raw := range o.cfg.Listen {
		if err := o.openOne(ctx, opened, raw, &opts); err != nil {
			opened.close()
			return nil, err
		}
	}
	if err := listen.CheckInherited(o.inherited, opened.inOrder); err != nil {
		opened.close()
		return nil, err
	}
	warnOfAnyUser(o.logger, o.users, opened.inOrder)
	return opened, nil
}

// openOne opens one listener. It loads the TLS keys when they are first needed.
func (o opener) openOne(ctx context.Context, opened *listeners, raw string, opts *listen.Options) error {
	url, err := listen.Parse(raw)
	if err != nil {
		return err
	}
	switch url.Scheme {
	case listen.SchemeOff:
		return nil
	case listen.SchemeStdio:
		return o.openStdio(opened)
	case listen.SchemeTLS, listen.SchemeGRPCS, listen.SchemeWSS:
		if opts.TLS == nil && o.cfg.TLSCertificate != "" && o.cfg.TLSKey != "" {
			if opts.TLS, err = o.loadTLS(); err != nil {
				return fmt.Errorf("failed to listen on %s: %w", url, err)
			}
			opened.tls = opts.TLS
		}
	}
	l, err := listen.Listen(ctx, url, *opts)
	if err != nil {
		return err
	}
	opened.inOrder = append(opened.inOrder, l)
	o.warnOfPlainText(l.URL())
	return nil
}

var errTwoStdio = errors.New("stdio is listed twice, and there is one standard input: leave one out")

func (o opener) openStdio(opened *listeners) error {
	if opened.stdio != nil {
		return errTwoStdio
	}
	caller, info, err := o.authenticator.stdioCaller()
	if err != nil {
		return fmt.Errorf("failed to open stdio: the table of principals has to list the user who starts the server, by unix_users: %w", err)
	}
	transport, err := jsonrpc.OpenStdio(jsonrpc.StdioOptions{MessageLimit: int(o.cfg.Request)})
	if err != nil {
		return fmt.Errorf("failed to open stdio: %w", err)
	}
	o.logger.Debug("serving the standard streams", "principal", caller.Principal.Name)
	opened.stdio = &stdioClient{transport: transport, principal: caller.Principal.Name, info: info}
	return nil
}

// warnOfPlainText logs a warning if credentials travel unencrypted to other hosts.
func (o opener) warnOfPlainText(u listen.URL) {
	if u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() {
		o.logger.Warn("tokens and all other data travel unencrypted: use wss://, unless the whole network is trusted", "listener", u.String())
	}
}

// logFull returns a function that logs that a listener is full, at a limited rate.
func (o opener) logFull() func(listen.URL, int) {
	limited := rarely()
	return func(u listen.URL, limit int) {
		if o.authenticator != nil {
			o.authenticator.metrics.limitHit("connections_per_listener")
		}
		limited(func() {
			o.logger.Warn("a listener closed a connection: its limit is reached; suppressing further lines for a while",
				"listener", u.String(), "connections_per_listener", limit)
		})
	}
}

// logAcceptFailed logs a failed accept.
func (o opener) logAcceptFailed(u listen.URL, err error) {
	o.logger.Warn("failed to accept a connection; retrying, and suppressing further failures for a while",
		"listener", u.String(), "error", err)
}

// loadTLS loads the TLS keys of the listeners.
func (o opener) loadTLS() (*listen.TLS, error) {
	if o.cfg.TLSClientCA == "" && o.authenticator.principals.WantsCertificates() {
		o.logger.Warn("the table of principals has certificates, but clients are not asked for any: set tls_ca")
	}
	files := listen.TLSFiles{Certificate: o.cfg.TLSCertificate, Key: o.cfg.TLSKey, ClientCA: o.cfg.TLSClientCA}
	return listen.LoadTLS(files, func(err error) {
		o.logger.Error("failed to reload the TLS keys; keeping the old ones", "error", err)
	})
}
