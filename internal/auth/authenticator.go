package auth

import (
	"errors"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// Authenticator tells who calls and what it may do. It may be used
// concurrently.
type Authenticator struct {
	table     *secretfile.Watched[*Table] // nil if there is none
	websocket *websocketTokens            // nil if there are none
}

// NewAuthenticator returns one that follows the table of principals at file,
// and knows the tokens that ws speaks of, which are as good as those in the
// table. Both are read again when they, or a file that the table refers to, have
// changed. If the new version is wrong, broken is told why and the old one stays
// in force. With an empty file there is no table: whoever the kernel knows, and
// peers on loopback that their listener accepts, may do everything, and credentials other than those
// tokens cannot be right. The error is a [*TableError] or a [*WebsocketError].
func NewAuthenticator(file string, ws WebsocketOptions, broken func(error)) (*Authenticator, error) {
	tokens, err := newWebsocketTokens(ws, broken)
	if err != nil || file == "" {
		return &Authenticator{websocket: tokens}, err
	}
	load := func() (*Table, []string, error) {
		table, files, err := ReadTable(file)
		if err == nil && tokens != nil {
			table.admitWebsocket(tokens)
		}
		return table, files, err
	}
	table, err := secretfile.Watch(load, broken, time.Now)
	if err != nil {
		return nil, err
	}
	return &Authenticator{table: table, websocket: tokens}, nil
}

// HasWebsocketTokens reports whether clients of websockets are let in by a token
// that no table needs to list.
func (a *Authenticator) HasWebsocketTokens() bool { return a.websocket != nil }

// HasTable reports whether a table decides who is let in.
func (a *Authenticator) HasTable() bool { return a.table != nil }

// WantsCertificates reports whether the table lists anybody by a certificate.
func (a *Authenticator) WantsCertificates() bool {
	if a.table == nil {
		return false
	}
	for s := range a.table.Get().by {
		if s.kind == byCertificate {
			return true
		}
	}
	return false
}

// Authenticate returns who shows c, and what it may do. It may read the table
// again, which is not waited for by more than one call. The error is an
// *[Error].
func (a *Authenticator) Authenticate(c Credentials) (Caller, error) {
	if a.table != nil {
		return a.table.Get().Authenticate(c)
	}
	self, err := a.withoutTable(c)
	if err != nil || c.OnBehalfOf == "" {
		return self, err
	}
	var allowed []string
	if c.InProcess {
		allowed = []string{"*"}
	}
	if err := mayActFor(self, allowed, c.OnBehalfOf); err != nil {
		return Caller{}, err
	}
	return unlisted(self, c.OnBehalfOf), nil
}

var (
	errNoTable = errors.New("there is no table of principals that it could be in")
	errNoToken = errors.New("it showed no token, which ws_auth asks clients of websockets for")
)

func (a *Authenticator) withoutTable(c Credentials) (Caller, error) {
	switch {
	case c.InProcess:
		return Unrestricted(InProcess), nil
	case !c.Known.IsZero():
		return Unrestricted(c.Known), nil
	case c.Token != "" && a.websocket != nil:
		if err := a.websocket.check(c.Token); err != nil {
			return Caller{}, err
		}
		return Unrestricted(Websocket), nil
	case c.Token != "":
		return Caller{}, &Error{Kind: KindTokenInvalid, Subject: "bearer of a token", Err: errNoTable}
	case (c.Peer != nil || c.Loopback) && c.PeerRefused != nil:
		return Caller{}, c.PeerRefused
	case c.Peer != nil:
		return Unrestricted(c.Peer.Principal()), nil
	case c.Loopback:
		return Unrestricted(Loopback), nil
	case a.websocket != nil:
		return Caller{}, &Error{Kind: KindCredentialMissing, Subject: "caller", Err: errNoToken}
	}
	return Caller{}, &Error{Kind: KindCredentialMissing, Subject: "caller", Err: errNoTable}
}
