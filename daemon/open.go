package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// opener opens doors.
type opener struct {
	cfg        config.Config
	doorkeeper *doorkeeper
	logger     *slog.Logger
	// confined is that of [listen.Locks].
	confined func(auth.Peer, func() bool) error
}

// doors are where clients are accepted.
type doors struct {
	grpc, websocket []listen.Listener
	inOrder         []listen.Listener // all of those, as they were configured
	stdio           *stdioClient      // nil if nobody comes by the standard streams
}

// stdioClient is whoever is at the other end of the standard streams.
type stdioClient struct {
	transport *jsonrpc.Stdio
	principal string
	info      clientAuthInfo
}

// onlyStdio reports whether nobody else can come.
func (o *doors) onlyStdio() bool { return o.stdio != nil && len(o.inOrder) == 0 }

// tell calls onListen, unless it is nil, with the URL of each listener.
func (o *doors) tell(onListen func(url string)) {
	if onListen == nil {
		return
	}
	for _, l := range o.inOrder {
		onListen(l.URL().String())
	}
}

// close closes all doors.
func (o *doors) close() {
	for _, l := range o.inOrder {
		_ = l.Close()
	}
	if o.stdio != nil {
		_ = o.stdio.transport.Close(0, "")
	}
}

// open opens all configured doors or none.
func (o opener) open(ctx context.Context) (*doors, error) {
	opened := &doors{}
	locks := listen.Locks{
		Authenticated:          o.doorkeeper.authenticator.HasTable(),
		WebsocketAuthenticated: o.doorkeeper.authenticator.HasTable() || o.doorkeeper.authenticator.HasWebsocketTokens(),
		LoopbackUsers:          o.doorkeeper.users,
		Confined:               o.confined,
		Unadmitted:             unadmittedHeaders * int(o.cfg.HeaderList),
		Connections:            int(o.cfg.Connections),
		Full:                   o.tellFull(),
		AcceptFailed:           o.logAcceptFailed,
		HandshakeFailed:        o.doorkeeper.handshakeFailed,
	}
	for _, raw := range o.cfg.Listen {
		if err := o.openOne(ctx, opened, raw, &locks); err != nil {
			opened.close()
			return nil, err
		}
	}
	warnOfAnyUser(o.logger, o.doorkeeper.users, opened.inOrder)
	return opened, nil
}

// openOne opens one door. It reads the keys for TLS when they are needed first.
func (o opener) openOne(ctx context.Context, opened *doors, raw string, locks *listen.Locks) error {
	url, err := listen.Parse(raw)
	if err != nil {
		return err
	}
	switch url.Scheme {
	case listen.SchemeOff:
		return nil
	case listen.SchemeStdio:
		return o.openStdio(opened)
	case listen.SchemeGRPCS, listen.SchemeWSS:
		if locks.TLS == nil && o.cfg.TLSCertificate != "" && o.cfg.TLSKey != "" {
			if locks.TLS, err = o.loadTLS(); err != nil {
				return fmt.Errorf("failed to listen on %s: %w", url, err)
			}
		}
	}
	l, err := listen.Listen(ctx, url, *locks)
	if err != nil {
		return err
	}
	opened.inOrder = append(opened.inOrder, l)
	switch url.Scheme {
	case listen.SchemeWS, listen.SchemeWSS:
		o.warnOfPlainText(l.URL())
		opened.websocket = append(opened.websocket, l)
	default:
		opened.grpc = append(opened.grpc, l)
	}
	return nil
}

var errTwoStdio = errors.New("stdio is listed twice, and there is one standard input: leave one out")

func (o opener) openStdio(opened *doors) error {
	if opened.stdio != nil {
		return errTwoStdio
	}
	caller, info, err := o.doorkeeper.starter()
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

// warnOfPlainText says so if what clients show passes other hosts as it is.
func (o opener) warnOfPlainText(u listen.URL) {
	if u.Scheme == listen.SchemeWS && !u.Addr.Addr().IsLoopback() {
		o.logger.Warn("tokens and everything else travel in plain text: use wss://, unless all of the network is trusted", "listener", u.String())
	}
}

// fullInterval is how often the log tells of connections that had no place.
const fullInterval = time.Minute

// tellFull returns what has the log tell that a door was full, not more often
// than is of use.
func (o opener) tellFull() func(listen.URL) {
	var mu sync.Mutex
	told := make(map[listen.URL]time.Time)
	return func(u listen.URL) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told[u]) < fullInterval {
			return
		}
		told[u] = time.Now()
		o.logger.Warn("a listener has as many connections as it may have, and closed one; more of them are not logged for a while",
			"listener", u.String(), "connections_per_listener", int(o.cfg.Connections))
	}
}

// logAcceptFailed logs that a connection could not be accepted.
func (o opener) logAcceptFailed(u listen.URL, err error) {
	o.logger.Warn("a connection could not be accepted; accepting is retried, and further failures are not logged for a while",
		"listener", u.String(), "error", err)
}

// loadTLS reads what doors with TLS are locked with.
func (o opener) loadTLS() (*listen.TLS, error) {
	if o.cfg.TLSClientCA == "" && o.doorkeeper.authenticator.WantsCertificates() {
		o.logger.Warn("principals are listed by certificates, and none is asked for: set tls_client_ca_file")
	}
	files := listen.TLSFiles{Certificate: o.cfg.TLSCertificate, Key: o.cfg.TLSKey, ClientCA: o.cfg.TLSClientCA}
	return listen.LoadTLS(files, func(err error) {
		o.logger.Error("the keys for TLS cannot be read again; the old ones stay in use", "error", err)
	})
}
