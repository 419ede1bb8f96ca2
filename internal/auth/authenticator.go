package auth

import (
	"errors"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// Authenticator authenticates callers and returns their permissions. It may be
// used concurrently.
type Authenticator struct {
	table     *secretfile.Watched[*Table] // nil without a table
	websocket *websocketTokens            // nil if not required
}

// NewAuthenticator returns an Authenticator for the table of principals in file
// and the tokens of ws, which are equally valid. Files, including those that the
// table refers to, are reread after they changed; if the new version is invalid,
// onError is called and the previous one stays in force. With an empty file there
// is no table: unix peers, and loopback peers accepted by their listener, have
// all permissions, and no other credentials than those tokens are valid. The
// error is a [*TableError] or a [*WebsocketError].
func NewAuthenticator(file string, ws WebsocketOptions, onError func(error)) (*Authenticator, error) {
	tokens, err := newWebsocketTokens(ws, onError)
	if err != nil || file == "" {
		return &Authenticator{websocket: tokens}, err
	}
	load := func() (*Table, []string, error) {
		table, files, err := ReadTable(file)
		if err == nil && tokens != nil {
			table.addWebsocketTokens(tokens)
		}
		return table, files, err
	}
	table, err := secretfile.Watch(load, onError, time.Now)
	if err != nil {
		return nil, err
	}
	return &Authenticator{table: table, websocket: tokens}, nil
}

// Prepare reads the table and the secrets of tokens again, at once. apply puts them in use.
// An error, as of [NewAuthenticator], changes nothing.
func (a *Authenticator) Prepare() (apply func(), err error) {
	applyTable, applyTokens := func() {}, func() {}
	if a.websocket != nil {
		if applyTokens, err = a.websocket.verify.Prepare(); err != nil {
			return nil, err
		}
	}
	if a.table != nil {
		if applyTable, err = a.table.Prepare(); err != nil {
			return nil, err
		}
	}
	return func() { applyTokens(); applyTable() }, nil
}

// HasWebsocketTokens reports whether websocket clients are accepted with a token
// outside the table.
func (a *Authenticator) HasWebsocketTokens() bool { return a.websocket != nil }

// HasTable reports whether there is a table of principals.
func (a *Authenticator) HasTable() bool { return a.table != nil }

// WantsCertificates reports whether the table lists certificates.
func (a *Authenticator) WantsCertificates() bool {
	if a.table == nil {
		return false
	}
	for s := range a.table.Get().bySelector {
		if s.kind == byCertificate {
			return true
		}
	}
	return false
}

// Authenticate returns the caller with credentials c. It may reread the table;
// concurrent calls do not wait for that. The error is an *[Error].
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
	if err := checkImpersonation(self, allowed, c.OnBehalfOf); err != nil {
		return Caller{}, err
	}
	return impersonated(self, c.OnBehalfOf), nil
}

var (
	errNoTable = errors.New("there is no table of principals")
	errNoToken = errors.New("no token, but ws_auth requires one of websocket clients")
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
