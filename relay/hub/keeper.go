package hub

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// keeper tells who asks, from the listener that a request came by and what it
// shows.
type keeper struct {
	authenticator *auth.Authenticator
	attempts      *auth.Attempts // nil if there is nothing to guess
	users         auth.LoopbackUsers
	logger        *slog.Logger
}

func newKeeper(cfg config.Hub, logger *slog.Logger) (*keeper, error) {
	k := &keeper{logger: logger}
	var err error
	if k.users, err = auth.ParseLoopbackUsers(cfg.LoopbackUsers); err != nil {
		return nil, &config.Error{Setting: "loopback_users", Problem: err.Error(), Fix: "write same, any, or names of users of this machine"}
	}
	k.authenticator, err = auth.NewAuthenticator(cfg.Principals, auth.WebsocketOptions{}, func(err error) {
		logger.Error("the table of principals or a secret cannot be read again; the old one stays in force", "error", err)
	})
	if err == nil && k.authenticator.HasTable() {
		k.attempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
	}
	return k, err
}

// connKey is of the connection that a request came on.
type connKey struct{}

// withConn gives requests their connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// arrival returns the connection that r came on, and what its listener knows
// about the other end.
func arrival(r *http.Request) (net.Conn, credentials.AuthInfo, error) {
	conn := r.Context().Value(connKey{}).(net.Conn)
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return nil, nil, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: err}
	}
	return conn, info, nil
}

// authenticate returns who asks by r. Nothing that is shown is looked at while
// its address has failed too often.
func (k *keeper) authenticate(r *http.Request) (auth.Member, error) {
	conn, info, err := arrival(r)
	if err != nil {
		return auth.Member{}, err
	}
	member, err := k.judge(r, conn, info)
	if err != nil {
		if k.attempts != nil && auth.IsFailedAttempt(err) {
			k.attempts.Failed(addrOf(conn))
		}
		return auth.Member{}, err
	}
	return member, admit(info, member)
}

func (k *keeper) judge(r *http.Request, conn net.Conn, info credentials.AuthInfo) (auth.Member, error) {
	var shown auth.Credentials
	switch info := info.(type) {
	case listen.LoopbackAuthInfo:
		shown.Loopback, shown.PeerRefused = true, info.Refused()
	case listen.TLSAuthInfo:
		// Without a table such a listener is on loopback, and has no more to it.
		shown.Loopback, shown.PeerRefused = !k.authenticator.HasTable(), info.Refused()
		if len(info.State.VerifiedChains) > 0 {
			shown.Certificates = info.State.PeerCertificates
		}
	}
	authorization := r.Header.Values("Authorization")
	switch {
	case !k.authenticator.HasTable():
		// Nobody has a token. Those who show one all the same are made for a
		// registry where they need it.
		authorization = nil
	case len(authorization) > 0 || len(shown.Certificates) > 0:
		if err := k.attempts.Check(addrOf(conn)); err != nil {
			return auth.Member{}, err
		}
	}
	var err error
	if shown.Token, err = auth.ParseAuthorization(authorization); err != nil {
		return auth.Member{}, err
	}
	return k.authenticator.Member(shown)
}

// recall returns what somebody may do now for whom a URL was made.
func (k *keeper) recall(r *http.Request, principal auth.Principal) (auth.Member, error) {
	_, info, err := arrival(r)
	if err != nil {
		return auth.Member{}, err
	}
	member, err := k.authenticator.Member(auth.Credentials{Known: principal})
	if err != nil {
		return member, err
	}
	return member, admit(info, member)
}

// admission is what AuthInfos of listeners have; see [listen.Admission].
type admission interface {
	Admit(principal string) error
	Use(evict func(error)) (end func())
}

// admit gives the connection a place of the member at its listener.
func admit(info credentials.AuthInfo, member auth.Member) error {
	if a, ok := info.(admission); ok {
		return a.Admit(member.Principal.Name)
	}
	return nil
}

// use notes that the connection of r is in use.
func use(r *http.Request, evict func(error)) (end func()) {
	if _, info, err := arrival(r); err == nil {
		if a, ok := info.(admission); ok {
			return a.Use(evict)
		}
	}
	return func() {}
}

// handshakeFailed counts a client that did not get through the handshake, unless
// it was the client that ended it.
func (k *keeper) handshakeFailed(remote net.Addr, err error) {
	ended, ok := errors.AsType[*net.OpError](err)
	if tcp, isTCP := remote.(*net.TCPAddr); isTCP && k.attempts != nil && !(ok && ended.Op == "remote error") {
		k.attempts.Failed(tcp.AddrPort().Addr())
	}
	k.logger.Info("a TLS handshake failed", "peer", remote.String(), "error", err)
}

// addrOf returns the address of a TCP peer; the invalid one of others.
func addrOf(conn net.Conn) netip.Addr {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}
