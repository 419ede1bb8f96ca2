package daemon

import (
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// clientAuthInfo is the AuthInfo of calls that are made for a client of
// JSON-RPC.
type clientAuthInfo struct {
	credentials.CommonAuthInfo
	shown auth.Credentials // has no token
}

// AuthType returns "client".
func (clientAuthInfo) AuthType() string { return "client" }

func newClientAuthInfo(shown auth.Credentials) clientAuthInfo {
	// Nothing leaves the process from here on.
	return clientAuthInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, shown: shown}
}

// upgrade returns who asks for a websocket by r, which came on conn, and gives conn its
// place at the listener. Calls by that websocket are made as whom the
// AuthInfo tells: what it may do is looked up for each, and what it has shown is
// not looked at again.
func (k *doorkeeper) upgrade(r *http.Request, conn net.Conn) (auth.Caller, clientAuthInfo, admission, error) {
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return auth.Caller{}, clientAuthInfo{}, nil, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: err}
	}
	v := visitor{
		addr: conn.RemoteAddr(), info: info, websocket: true,
		authorization: r.Header.Values(authorizationKey), onBehalfOf: r.Header.Values(onBehalfOfKey),
	}
	caller, err := k.letIn(v)
	if err != nil {
		return auth.Caller{}, clientAuthInfo{}, nil, err
	}
	admitted := info.(admission)
	if err := admitted.Admit(caller.Self().Name); err != nil {
		return auth.Caller{}, clientAuthInfo{}, nil, err
	}
	shown := auth.Credentials{Known: caller.Self()}
	if len(v.onBehalfOf) > 0 {
		shown.OnBehalfOf = v.onBehalfOf[0]
	}
	return caller, newClientAuthInfo(shown), admitted, nil
}

// starter is who started this program, and is at the other end of its standard
// streams: the same as on a unix socket.
func (k *doorkeeper) starter() (auth.Caller, clientAuthInfo, error) {
	info := newClientAuthInfo(auth.Credentials{Peer: &auth.Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}})
	caller, err := k.letIn(visitor{info: info})
	return caller, info, err
}

// websocketOptions gives package auth its part of the configuration.
func websocketOptions(cfg config.Config) auth.WebsocketOptions {
	return auth.WebsocketOptions{
		Auth:             auth.WebsocketAuth(cfg.WebsocketAuth),
		TokenFile:        cfg.WebsocketToken,
		TokenSHA256:      cfg.WebsocketTokenHash,
		SharedSecretFile: cfg.WebsocketSecret,
		Issuer:           cfg.WebsocketIssuer,
		Audience:         cfg.WebsocketAudience,
		MaxClockSkew:     time.Duration(cfg.WebsocketClockSkew),
	}
}
