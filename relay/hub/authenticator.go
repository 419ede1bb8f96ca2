package hub

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// authenticator authenticates requests by their listener and credentials.
type authenticator struct {
	principals      *auth.Authenticator
	attempts        *auth.Attempts // nil if there is no table of principals
	previewAttempts *auth.Attempts // the same
	users           auth.LoopbackUsers
	logger          *slog.Logger
	metrics         *hubMetrics
}

func newAuthenticator(cfg config.Hub, logger *slog.Logger, counts *hubMetrics) (*authenticator, error) {
	a := &authenticator{logger: logger, metrics: counts}
	var err error
	if a.users, err = auth.ParseLoopbackUsers(cfg.LoopbackUsers); err != nil {
		return nil, &config.Error{Setting: "loopback_users", Problem: err.Error(), Fix: "write same, any, or names of users of this machine"}
	}
	a.principals, err = auth.NewAuthenticator(cfg.Principals, auth.WebsocketOptions{}, func(err error) {
		logger.Error("failed to reload the table of principals or a secret; keeping the old one", "error", err)
	})
	if err == nil && a.principals.HasTable() {
		a.attempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
		a.previewAttempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
	}
	return a, err
}

// prepare reads the table of principals and its secrets again. apply puts them in use.
func (a *authenticator) prepare(cfg config.Hub) (apply func(), err error) {
	principals, err := a.principals.Prepare()
	if err != nil {
		return nil, err
	}
	return func() {
		principals()
		for _, attempts := range []*auth.Attempts{a.attempts, a.previewAttempts} {
			attempts.SetLimits(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval))
		}
	}, nil
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn adds the connection to the context of its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

func connOf(r *http.Request) net.Conn { return r.Context().Value(connKey{}).(net.Conn) }

// peerOf returns the connection of r and what its listener knows about the peer.
func peerOf(r *http.Request) (net.Conn, listen.AuthInfo, error) {
	conn := connOf(r)
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return nil, listen.AuthInfo{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: err}
	}
	return conn, info, nil
}

// authenticate returns the caller of r. Credentials are not checked while the
// peer's address has too many failed attempts.
func (a *authenticator) authenticate(r *http.Request) (auth.Member, error) {
	return a.authenticateCounting(r, a.attempts)
}

// authenticatePreview is authenticate for previews, with failed attempts of their own:
// their pages can make the browsers of visitors send wrong tokens, which must not lock
// out other clients at the same address.
func (a *authenticator) authenticatePreview(r *http.Request) (auth.Member, error) {
	return a.authenticateCounting(r, a.previewAttempts)
}

func (a *authenticator) authenticateCounting(r *http.Request, attempts *auth.Attempts) (auth.Member, error) {
	conn, info, err := peerOf(r)
	if err != nil {
		return auth.Member{}, err
	}
	// Without a table, a listener with TLS is on loopback, and no tokens are
	// configured. Clients may still send one that was meant for another registry.
	shown := auth.Credentials{Loopback: info.Loopback}
	authorization := r.Header.Values("Authorization")
	if !a.principals.HasTable() {
		shown.Loopback = info.Loopback || info.HasTLS()
		authorization = nil
	}
	if len(authorization) == 0 && shown.Loopback {
		shown.PeerRefused = info.Refused()
	}
	if len(info.State.VerifiedChains) > 0 {
		shown.Certificates = info.State.PeerCertificates
	}
	member, err := auth.AuthenticatePeer(attempts, conn.RemoteAddr(), authorization, shown, a.principals.Member)
	if err != nil {
		a.metrics.notAuthenticated(err)
		return auth.Member{}, err
	}
	return member, info.Admit(member.Principal.Name)
}

// authenticateIdentity returns the caller of r by the identities that identify finds at an
// OpenID provider. It is not called while the peer's address has too many failed attempts.
func (a *authenticator) authenticateIdentity(r *http.Request, identify func() ([]string, error)) (auth.Member, error) {
	conn, info, err := peerOf(r)
	if err != nil {
		return auth.Member{}, err
	}
	var shown auth.Credentials
	err = a.attempts.Verify(conn.RemoteAddr(), func() (err error) {
		shown.Identities, err = identify()
		return err
	})
	var member auth.Member
	if err == nil {
		member, err = auth.AuthenticatePeer(a.attempts, conn.RemoteAddr(), nil, shown, a.principals.Member)
	}
	if err != nil {
		a.metrics.notAuthenticated(err)
		return auth.Member{}, err
	}
	return member, info.Admit(member.Principal.Name)
}

// recall returns the current permissions of a principal that a URL was issued to.
func (a *authenticator) recall(r *http.Request, principal auth.Principal) (auth.Member, error) {
	_, info, err := peerOf(r)
	if err != nil {
		return auth.Member{}, err
	}
	member, err := a.principals.Member(auth.Credentials{Known: principal})
	if err != nil {
		return member, err
	}
	return member, info.Admit(member.Principal.Name)
}

// trackUse marks the connection of r as in use.
func trackUse(r *http.Request, evict func(error)) (end func()) {
	_, info, _ := peerOf(r) // without a peer nothing is counted
	return info.Use(evict)
}

// handshakeFailed counts and logs a failed TLS handshake.
func (a *authenticator) handshakeFailed(remote net.Addr, err error) {
	a.metrics.authFailures.WithLabelValues("tls_handshake").Inc()
	a.attempts.HandshakeFailed(remote, err)
	a.logger.Info("a TLS handshake failed", "peer", remote.String(), "error", err)
}
