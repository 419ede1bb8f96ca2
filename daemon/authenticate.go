package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
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
)

// What callers show, as gRPC metadata.
const (
	authorizationKey = "authorization"
	onBehalfOfKey    = "execwire-on-behalf-of"
)

// doorkeeper tells who calls, from the door that the call came in by and what
// the caller showed.
type doorkeeper struct {
	authenticator *auth.Authenticator
	attempts      *auth.Attempts // nil if there is nothing to guess
	users         auth.LoopbackUsers
	logger        *slog.Logger
}

func newDoorkeeper(cfg config.Config, logger *slog.Logger) (*doorkeeper, error) {
	k := &doorkeeper{logger: logger}
	var err error
	if k.users, err = loopbackUsers(cfg); err != nil {
		return nil, err
	}
	k.authenticator, err = auth.NewAuthenticator(cfg.Principals, websocketOptions(cfg), func(err error) {
		logger.Error("the table of principals or a secret cannot be read again; the old one stays in force", "error", err)
	})
	if err != nil {
		return nil, err
	}
	if k.authenticator.HasTable() || k.authenticator.HasWebsocketTokens() {
		k.attempts = auth.NewAttempts(int(cfg.FailedAttempts), time.Duration(cfg.FailedAttemptInterval), nil)
	}
	return k, nil
}

// refusalKey is of why admit found that a caller is not let in.
type refusalKey struct{}

// visitor is somebody at a door.
type visitor struct {
	addr net.Addr             // where it comes from
	info credentials.AuthInfo // what the door knows; may be nil
	// All values of the headers by which it shows something.
	authorization, onBehalfOf []string
	// websocket is whether it asks for a websocket, to call by that.
	websocket bool
}

// visitorOf is whoever makes a call.
func visitorOf(ctx context.Context) visitor {
	v := visitor{
		authorization: metadata.ValueFromIncomingContext(ctx, authorizationKey),
		onBehalfOf:    metadata.ValueFromIncomingContext(ctx, onBehalfOfKey),
	}
	if p, ok := peer.FromContext(ctx); ok {
		v.addr, v.info = p.Addr, p.AuthInfo
	}
	return v
}

// authenticate returns who calls, and what that one may do. What admit has found
// wrong, and counted, is not looked at again.
func (k *doorkeeper) authenticate(ctx context.Context) (auth.Caller, error) {
	if refusal, ok := ctx.Value(refusalKey{}).(error); ok {
		return auth.Caller{}, refusal
	}
	return k.letIn(visitorOf(ctx))
}

// letIn returns who that is, and what it may do. Nothing that was shown is looked
// at while its address has failed too often.
func (k *doorkeeper) letIn(v visitor) (auth.Caller, error) {
	caller, err := k.judge(v)
	if k.attempts != nil && auth.IsFailedAttempt(err) {
		k.attempts.Failed(addrOf(v.addr))
	}
	return caller, err
}

// judge is letIn without counting.
func (k *doorkeeper) judge(v visitor) (auth.Caller, error) {
	_, relayed := v.info.(relayAuthInfo)
	if v.websocket && k.mayIgnoreTokens() || relayed { // tokens there are for the rendezvous
		v.authorization = nil
	}
	shown, err := k.door(v)
	if err != nil {
		return auth.Caller{}, err
	}
	if peer, ok := v.info.(interface{ Refused() error }); ok && len(v.authorization) == 0 && (shown.Loopback || shown.Peer != nil) {
		shown.PeerRefused = peer.Refused()
	}
	if k.attempts != nil && (len(v.authorization) > 0 || len(shown.Certificates) > 0) {
		if err := k.attempts.Check(addrOf(v.addr)); err != nil {
			return auth.Caller{}, err
		}
	}
	if shown.Token, err = auth.ParseAuthorization(v.authorization); err != nil {
		return auth.Caller{}, err
	}
	switch names := v.onBehalfOf; {
	case len(names) > 1, len(names) == 1 && names[0] == "":
		return auth.Caller{}, &auth.Error{Kind: auth.KindOnBehalfOfRefused, Subject: "one that the caller acts for", Err: errNotOneName}
	case len(names) == 1:
		shown.OnBehalfOf = names[0]
	}
	return k.authenticator.Authenticate(shown)
}

// mayIgnoreTokens reports whether nobody has a token. Clients of websockets that
// show one all the same are let in, where calls are refused: it is how clients
// do that are made for one server and used with another.
func (k *doorkeeper) mayIgnoreTokens() bool {
	return !k.authenticator.HasTable() && !k.authenticator.HasWebsocketTokens()
}

var (
	// errUnknownDoor means that a call came in by a way that says nothing about
	// the caller. No listener of this daemon does that.
	errUnknownDoor = errors.New("the call came in by a way that does not identify it")
	// errNotOneName means that it cannot be told for whom a call is made.
	errNotOneName = errors.New(onBehalfOfKey + " has to be one name")
)

// door returns what the door knows about a caller.
func (k *doorkeeper) door(v visitor) (auth.Credentials, error) {
	// Without a table, whoever comes by a TCP listener shows nothing but a token
	// for websockets, and there has to if there is one.
	loopback := !(v.websocket && !k.authenticator.HasTable() && k.authenticator.HasWebsocketTokens())
	switch info := v.info.(type) {
	case listen.PeerAuthInfo:
		return auth.Credentials{Peer: &info.Peer}, nil
	case listen.LoopbackAuthInfo:
		return auth.Credentials{Loopback: loopback}, nil
	case listen.RemoteAuthInfo:
		return auth.Credentials{}, nil
	case listen.TLSAuthInfo:
		// Without a table and without tokens such a door is on loopback, and has
		// no more to it.
		c := auth.Credentials{Loopback: loopback && !k.authenticator.HasTable()}
		if len(info.State.VerifiedChains) > 0 {
			c.Certificates = info.State.PeerCertificates
		}
		return c, nil
	case clientAuthInfo:
		return info.shown, nil
	case relayAuthInfo:
		return shownByRelay(), nil
	case inproc.AuthInfo:
		return auth.Credentials{InProcess: true}, nil
	}
	return auth.Credentials{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: errUnknownDoor}
}

// admission is what AuthInfos of listeners have; see [listen.Admission].
type admission interface {
	Begin()
	Admit(principal string) error
	Admitted() bool
	Use(evict func(error)) (end func())
	OnEvict(evict func(error)) (stop func())
}

// admit is called with the header of every call from a wire, before anything
// else of it is read. It refuses nobody, which is left to authenticate: it gives
// connections their place at the listener. The request of a call may never
// come, and what the connection may send then shows whether its token was right:
// it is a failed attempt from here on. With a call that is anybody's nothing is
// looked at.
func (k *doorkeeper) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
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
	if server.IsAnybodys(call.FullMethodName) || info.Admitted() {
		return ctx, nil
	}
	caller, err := k.authenticate(ctx)
	if err == nil {
		err = info.Admit(caller.Self().Name)
	}
	if err != nil {
		return context.WithValue(ctx, refusalKey{}, err), nil
	}
	return ctx, nil
}

// handshakeFailed counts a client that did not get through the handshake, unless
// it was the client that ended it: one that does not trust this server has not
// tried to get in.
func (k *doorkeeper) handshakeFailed(remote net.Addr, err error) {
	level := slog.LevelInfo
	ended, ok := errors.AsType[*net.OpError](err)
	if k.attempts != nil && !(ok && ended.Op == "remote error") {
		addr := addrOf(remote)
		if k.attempts.Check(addr) != nil {
			level = slog.LevelDebug // it has been said
		}
		k.attempts.Failed(addr)
	}
	k.logger.Log(context.Background(), level, "a TLS handshake failed", "peer", remote.String(), "error", err)
}

// addrOf returns the address of a TCP peer; the invalid one of others.
func addrOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}
