package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
	"github.com/execwire/execwire/server/auditcall"
)

// Metadata keys with the credentials of callers.
const (
	authorizationKey = "authorization"
	onBehalfOfKey    = "execwire-on-behalf-of"
)

// authenticator identifies callers, by the listener they use and the credentials they
// show.
type authenticator struct {
	principals *auth.Authenticator
	attempts   *auth.Attempts // nil if there is no secret to guess
	// urlAttempts counts invalid signatures of URLs, apart from attempts: any web page
	// makes the browsers of its visitors send them, which must not lock out other clients
	// of the same address. nil if attempts is.
	urlAttempts *auth.Attempts
	users       auth.LoopbackUsers
	fileURLs    *auth.FileURLKeys
	logger      *slog.Logger
	metrics     *serverMetrics
	audit       *auditcall.Auditor // nil records nothing
}

func newAuthenticator(cfg config.Config, logger *slog.Logger, counts *serverMetrics) (*authenticator, error) {
	k := &authenticator{logger: logger, metrics: counts}
	var err error
	if k.users, err = loopbackUsers(cfg); err != nil {
		return nil, err
	}
	k.principals, err = auth.NewAuthenticator(cfg.Principals, websocketOptions(cfg), func(err error) {
		logger.Error("failed to reload the table of principals or a secret; keeping the old one", "error", err)
	})
	if err != nil {
		return nil, err
	}
	k.fileURLs, err = auth.NewFileURLKeys(cfg.SignedURLKeys, func(err error) {
		logger.Error("failed to reload the keys of signed URLs; keeping the old ones", "error", err)
	})
	if err != nil {
		return nil, fmt.Errorf("signed_url_key_file: %w", err)
	}
	if k.principals.HasTable() || k.principals.HasWebsocketTokens() {
		k.attempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
		k.urlAttempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
	}
	return k, nil
}

// prepare reads the table of principals and all secrets again. apply puts them in use.
func (a *authenticator) prepare(cfg config.Config) (apply func(), err error) {
	principals, err := a.principals.Prepare()
	if err != nil {
		return nil, err
	}
	fileURLs, err := a.fileURLs.Prepare()
	if err != nil {
		return nil, fmt.Errorf("signed_url_key_file: %w", err)
	}
	return func() {
		principals()
		fileURLs()
		for _, attempts := range []*auth.Attempts{a.attempts, a.urlAttempts} {
			attempts.SetLimits(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval))
		}
	}, nil
}

// refusalKey is the context key of the error with which admit rejected a caller.
type refusalKey struct{}

// peerInfo describes a client that is to be authenticated.
type peerInfo struct {
	addr net.Addr             // its address
	info credentials.AuthInfo // what the listener knows about it; may be nil
	// All values of the headers with credentials.
	authorization, onBehalfOf []string
	// http is whether it sends an HTTP request, and websocket whether that is for a
	// websocket.
	http, websocket bool
}

// peerOf returns the client that makes a call.
func peerOf(ctx context.Context) peerInfo {
	v := peerInfo{
		authorization: metadata.ValueFromIncomingContext(ctx, authorizationKey),
		onBehalfOf:    metadata.ValueFromIncomingContext(ctx, onBehalfOfKey),
	}
	if p, ok := peer.FromContext(ctx); ok {
		v.addr, v.info = p.Addr, p.AuthInfo
	}
	return v
}

// authenticate returns the caller and its permissions. What admit has rejected, and
// counted, is not checked again.
func (a *authenticator) authenticate(ctx context.Context) (auth.Caller, error) {
	if refusal, ok := ctx.Value(refusalKey{}).(error); ok {
		return auth.Caller{}, refusal
	}
	return a.authenticatePeer(peerOf(ctx))
}

// authenticatePeer returns the caller and its permissions, and counts failed
// attempts. Credentials are not checked while the address has failed too often.
func (a *authenticator) authenticatePeer(v peerInfo) (auth.Caller, error) {
	caller, err := a.identify(v)
	a.metrics.notAuthenticated(err)
	return caller, err
}

// identify is authenticatePeer without the metrics.
func (a *authenticator) identify(v peerInfo) (auth.Caller, error) {
	_, relayed := v.info.(relayAuthInfo)
	if v.websocket && a.ignoresTokens() || relayed { // the token is for the rendezvous
		v.authorization = nil
	}
	shown, err := a.credentialsOf(v)
	if err != nil {
		return auth.Caller{}, err
	}
	if peer, ok := v.info.(listen.AuthInfo); ok && len(v.authorization) == 0 && (shown.Loopback || shown.Peer != nil) {
		shown.PeerRefused = peer.Refused()
	}
	switch names := v.onBehalfOf; {
	case len(names) > 1, len(names) == 1 && names[0] == "":
		return auth.Caller{}, &auth.Error{Kind: auth.KindOnBehalfOfRefused, Subject: "one that the caller acts for", Err: errNotOneName}
	case len(names) == 1:
		shown.OnBehalfOf = names[0]
	}
	return auth.AuthenticatePeer(a.attempts, v.addr, v.authorization, shown, a.principals.Authenticate)
}

// ignoresTokens reports whether no tokens are configured. Clients of websockets are
// then accepted with any token, because clients that are configured for one server
// are used with others. Calls are not.
func (a *authenticator) ignoresTokens() bool {
	return !a.principals.HasTable() && !a.principals.HasWebsocketTokens()
}

var (
	// errUnknownListener means that the connection does not identify the caller. No
	// listener of this daemon causes it.
	errUnknownListener = errors.New("the call came in by a way that does not identify it")
	// errNotOneName means that the header does not name one principal.
	errNotOneName = errors.New(onBehalfOfKey + " has to be one name")
)

// credentialsOf returns what the listener knows about a client.
func (a *authenticator) credentialsOf(v peerInfo) (auth.Credentials, error) {
	// Without a table, a client of HTTP on a TCP listener can only show a token of
	// ws_auth, and must show it if there is one.
	loopback := !(v.http && !a.principals.HasTable() && a.principals.HasWebsocketTokens())
	switch info := v.info.(type) {
	case listen.AuthInfo:
		// Without a table and without tokens, a listener with TLS is on loopback.
		c := auth.Credentials{Peer: info.Peer, Loopback: loopback && (info.Loopback || info.HasTLS() && !a.principals.HasTable())}
		if len(info.State.VerifiedChains) > 0 {
			c.Certificates = info.State.PeerCertificates
		}
		return c, nil
	case clientAuthInfo:
		return info.shown, nil
	case relayAuthInfo:
		return relayCredentials(), nil
	case inproc.AuthInfo:
		return auth.Credentials{InProcess: true}, nil
	}
	return auth.Credentials{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: errUnknownListener}
}

// admit is called with the header of every call from a network connection, before
// anything else of the call is read. It rejects no call; authenticate does. It counts
// the connection at its listener as one of the caller. The request may never come,
// and how much the connection may send then depends on whether the credentials were
// valid, so invalid ones are a failed attempt from here on. Credentials of public
// calls are not checked.
func (a *authenticator) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(relayAuthInfo); ok {
			info.conn.begin()
		}
	}
	info, ok := admissionOf(ctx)
	if !ok {
		return ctx, nil
	}
	info.Begin()
	if server.IsPublic(call.FullMethodName) || info.Admitted() {
		return ctx, nil
	}
	caller, err := a.authenticate(ctx)
	if err == nil {
		err = info.Admit(caller.Self().Name)
	}
	if err != nil {
		return context.WithValue(ctx, refusalKey{}, err), nil
	}
	return ctx, nil
}

// handshakeFailed counts and logs a failed TLS handshake.
func (a *authenticator) handshakeFailed(remote net.Addr, err error) {
	a.metrics.authFailures.WithLabelValues("tls_handshake").Inc()
	level := slog.LevelInfo
	if a.attempts.HandshakeFailed(remote, err) {
		level = slog.LevelDebug // it was logged before
	}
	auditHandshake(a.audit, remote, err)
	a.logger.Log(context.Background(), level, "a TLS handshake failed", "peer", remote.String(), "error", err)
}
