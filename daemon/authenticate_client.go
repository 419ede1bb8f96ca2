package daemon

import (
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// clientAuthInfo is the AuthInfo of calls that are made for a client of HTTP or
// JSON-RPC.
type clientAuthInfo struct {
	credentials.CommonAuthInfo
	shown auth.Credentials // without a token
	api   api              // "" is JSON-RPC
	by    audit.Caller     // for the audit log
}

// AuthType returns "client".
func (clientAuthInfo) AuthType() string { return "client" }

func newClientAuthInfo(shown auth.Credentials, by audit.Caller) clientAuthInfo {
	// The calls do not leave the process.
	return clientAuthInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, shown: shown, by: by}
}

// admitHTTP is admitRequest for a request that is not for a websocket.
func (a *authenticator) admitHTTP(r *http.Request, on *httpConn) (auth.Caller, clientAuthInfo, listen.Admission, error) {
	return a.admitRequest(r, on, false)
}

// admitRequest returns the caller of the request r, which may be for a websocket, and
// counts its connection at its listener as one of the caller. Calls for the request, or
// by the websocket, are made with the AuthInfo: the permissions are looked up for each
// call, the credentials are not checked again.
func (a *authenticator) admitRequest(r *http.Request, on *httpConn, websocket bool) (auth.Caller, clientAuthInfo, listen.Admission, error) {
	if on.unknown != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: on.unknown}
	}
	v := httpPeerOf(r, on, websocket)
	caller, err := a.authenticatePeer(v)
	if err != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, err
	}
	if err := on.peer.Admit(caller.Self().Name); err != nil {
		return auth.Caller{}, clientAuthInfo{}, listen.Admission{}, err
	}
	shown := auth.Credentials{Known: caller.Self()}
	if len(v.onBehalfOf) > 0 {
		shown.OnBehalfOf = v.onBehalfOf[0]
	}
	return caller, newClientAuthInfo(shown, auditedPeer(v)), on.peer.Admission, nil
}

// httpPeerOf returns the client that sends an HTTP request.
func httpPeerOf(r *http.Request, on *httpConn, websocket bool) peerInfo {
	return peerInfo{
		addr: on.conn.RemoteAddr(), info: on.peer, http: true, websocket: websocket,
		authorization: r.Header.Values(authorizationKey), onBehalfOf: r.Header.Values(onBehalfOfKey),
	}
}

// stdioCaller returns the caller at the other end of the standard streams: the user
// that started this program, as on a unix socket.
func (a *authenticator) stdioCaller() (auth.Caller, clientAuthInfo, error) {
	info := newClientAuthInfo(auth.Credentials{Peer: &auth.Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}},
		audit.Caller{Credential: shownStdio, Peer: shownStdio})
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
