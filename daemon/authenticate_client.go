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

// clientAuthInfo is the AuthInfo of calls that are made for a JSON-RPC client.
type clientAuthInfo struct {
	credentials.CommonAuthInfo
	shown auth.Credentials // without a token
}

// AuthType returns "client".
func (clientAuthInfo) AuthType() string { return "client" }

func newClientAuthInfo(shown auth.Credentials) clientAuthInfo {
	// The calls do not leave the process.
	return clientAuthInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, shown: shown}
}

// upgrade returns the caller that requests a websocket by r on conn, and counts conn
// at its listener as one of the caller. Calls by that websocket are made with the
// AuthInfo: the permissions are looked up for each call, the credentials are not
// checked again.
func (a *authenticator) upgrade(r *http.Request, conn net.Conn) (auth.Caller, clientAuthInfo, listen.Admission, error) {
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: err}
	}
	v := peerInfo{
		addr: conn.RemoteAddr(), info: info, websocket: true,
		authorization: r.Header.Values(authorizationKey), onBehalfOf: r.Header.Values(onBehalfOfKey),
	}
	caller, err := a.authenticatePeer(v)
	if err != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, err
	}
	if err := info.Admit(caller.Self().Name); err != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, err
	}
	shown := auth.Credentials{Known: caller.Self()}
	if len(v.onBehalfOf) > 0 {
		shown.OnBehalfOf = v.onBehalfOf[0]
	}
	return caller, newClientAuthInfo(shown), info.Admission, nil
}

// stdioCaller returns the caller at the other end of the standard streams: the user
// that started this program, as on a unix socket.
func (a *authenticator) stdioCaller() (auth.Caller, clientAuthInfo, error) {
	info := newClientAuthInfo(auth.Credentials{Peer: &auth.Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}})
	caller, err := a.authenticatePeer(peerInfo{info: info})
	return caller, info, err
}

// websocketOptions is the configuration of package auth for websockets.
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
