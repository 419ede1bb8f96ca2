package hub

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// authenticator authenticates requests by their listener and credentials.
type authenticator struct {
	principals *auth.Authenticator
	attempts   *auth.Attempts // nil if there is no table of principals
	users      auth.LoopbackUsers
	logger     *slog.Logger
}

func newAuthenticator(cfg config.Hub, logger *slog.Logger) (*authenticator, error) {
	a := &authenticator{logger: logger}
	var err error
	if a.users, err = auth.ParseLoopbackUsers(cfg.LoopbackUsers); err != nil {
		return nil, &config.Error{Setting: "loopback_users", Problem: err.Error(), Fix: "write same, any, or names of users of this machine"}
	}
	a.principals, err = auth.NewAuthenticator(cfg.Principals, auth.WebsocketOptions{}, func(err error) {
		logger.Error("failed to reload the table of principals or a secret; keeping the old one", "error", err)
	})
	if err == nil && a.principals.HasTable() {
		a.attempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
	}
	return a, err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn adds the connection to the context of its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// peerOf returns the connection of r and what its listener knows about the peer.
func peerOf(r *http.Request) (net.Conn, listen.AuthInfo, error) {
	conn := r.Context().Value(connKey{}).(net.Conn)
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return nil, listen.AuthInfo{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: err}
	}
	return conn, info, nil
}

// authenticate returns the caller of r. Credentials are not checked while the
// peer's address has too many failed attempts.
func (a *authenticator) authenticate(r *http.Request) (auth.Member, error) {
	conn, info, err := peerOf(r)
	if err != nil {
		return auth.Member{}, err
	}
	member, err := a.member(r, conn, info)
	if err != nil {
		if a.attempts != nil && auth.IsFailedAttempt(err) {
			a.attempts.Failed(addrOf(conn))
		}
		return auth.Member{}, err
	}
	return member, info.Admit(member.Principal.Name)
}

func (a *authenticator) member(r *http.Request, conn net.Conn, info listen.AuthInfo) (auth.Member, error) {
	// Without a table, a listener with TLS is on loopback.
	shown := auth.Credentials{Loopback: info.Loopback || info.HasTLS() && !a.principals.HasTable(), PeerRefused: info.Refused()}
	if len(info.State.VerifiedChains) > 0 {
		shown.Certificates = info.State.PeerCertificates
	}
	authorization := r.Header.Values("Authorization")
	switch {
	case !a.principals.HasTable():
		// No tokens are configured. Clients may still send one that was meant for
		// another registry.
		authorization = nil
	case len(authorization) > 0 || len(shown.Certificates) > 0:
		if err := a.attempts.Check(addrOf(conn)); err != nil {
			return auth.Member{}, err
		}
	}
	var err error
	if shown.Token, err = auth.ParseAuthorization(authorization); err != nil {
		return auth.Member{}, err
	}
	return a.principals.Member(shown)
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

// handshakeFailed counts a failed TLS handshake as a failed attempt, unless the
// client ended it.
func (a *authenticator) handshakeFailed(remote net.Addr, err error) {
	ended, ok := errors.AsType[*net.OpError](err)
	if tcp, isTCP := remote.(*net.TCPAddr); isTCP && a.attempts != nil && !(ok && ended.Op == "remote error") {
		a.attempts.Failed(tcp.AddrPort().Addr())
	}
	a.logger.Info("a TLS handshake failed", "peer", remote.String(), "error", err)
}

// addrOf returns the address of a TCP peer, otherwise the zero Addr.
func addrOf(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}
