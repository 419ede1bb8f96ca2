package auth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// WebsocketAuth is how clients of websockets show that they may come in. The
// list is closed.
type WebsocketAuth string

// The ways.
const (
	WebsocketAuthOff         WebsocketAuth = "off"                 // they need not
	WebsocketCapabilityToken WebsocketAuth = "capability-token"    // by one token that all of them have
	WebsocketSignedToken     WebsocketAuth = "signed-bearer-token" // by tokens that are signed with HS256
)

// WebsocketOptions say which tokens let clients of websockets in. The zero value
// asks for none.
type WebsocketOptions struct {
	// Auth is how; empty is [WebsocketAuthOff].
	Auth WebsocketAuth
	// TokenFile has the token of WebsocketCapabilityToken; white space around it
	// does not count. TokenSHA256 is its SHA-256 in hexadecimal. One of them is
	// needed.
	TokenFile, TokenSHA256 string
	// SharedSecretFile has what tokens of WebsocketSignedToken are signed with.
	SharedSecretFile string
	// Issuer and Audience are required of signed tokens, if they are not empty.
	Issuer, Audience string
	// MaxClockSkew is by how much clocks may differ.
	MaxClockSkew time.Duration
	// Now is the clock for signed tokens; nil is time.Now.
	Now func() time.Time
}

// Websocket is whoever shows a token of [WebsocketOptions]. A table of
// principals may list it by its name and say what it may do; if it does not, it
// may do everything.
var Websocket = Principal{Name: "ws"}

// websocketTokens knows the tokens. It may be used concurrently.
type websocketTokens struct {
	verify *secretfile.Watched[func(token string) error]
}

// newWebsocketTokens returns nil if the options ask for no token. Files are read
// again when they are used after they changed; broken is told if the new version
// is wrong, and the old one stays. The error is a [*WebsocketError].
func newWebsocketTokens(opts WebsocketOptions, broken func(error)) (*websocketTokens, error) {
	var load func() (func(string) error, []string, error)
	switch opts.Auth {
	case "", WebsocketAuthOff:
		return nil, nil
	case WebsocketCapabilityToken:
		load = opts.loadToken
	case WebsocketSignedToken:
		load = opts.loadSecret
	default:
		return nil, &WebsocketError{Err: fmt.Errorf("%q is no way to authenticate", opts.Auth)}
	}
	verify, err := secretfile.Watch(load, broken, nil)
	if err != nil {
		return nil, err
	}
	return &websocketTokens{verify: verify}, nil
}

// WebsocketError says why nobody could show a token that is right.
type WebsocketError struct {
	// Err is the reason. It holds no secret.
	Err error
}

func (e *WebsocketError) Error() string {
	return fmt.Sprintf("failed to authenticate clients of websockets: %v", e.Err)
}

// Unwrap returns the reason.
func (e *WebsocketError) Unwrap() error { return e.Err }

func (o WebsocketOptions) loadToken() (verify func(string) error, files []string, err error) {
	var hash TokenHash
	if o.TokenFile != "" {
		files = append(files, o.TokenFile)
		text, err := secretfile.Token(o.TokenFile, MinSecretBytes)
		if err != nil {
			return nil, files, &WebsocketError{Err: err}
		}
		if bytes.ContainsFunc(text, notInToken) {
			return nil, files, &WebsocketError{Err: &secretfile.Error{File: o.TokenFile, Problem: "holds what a client could not send",
				Fix: "write letters and digits, for example with: openssl rand -hex 32"}}
		}
		hash = HashToken(text)
	} else {
		sum, err := hex.DecodeString(o.TokenSHA256)
		if err != nil || len(sum) != len(hash) {
			return nil, nil, &WebsocketError{Err: errors.New("the SHA-256 of the token is not 64 hexadecimal digits")}
		}
		hash = TokenHash(sum)
	}
	return func(token string) error {
		if FindToken([]TokenHash{hash}, token) < 0 {
			return failed(KindTokenInvalid, "bearer of a token", "it is not that of clients of websockets")
		}
		if len(token) < MinSecretBytes { // of a hash, which does not tell
			return failed(KindTokenInvalid, "bearer of a token", "it is that of clients of websockets, but has less than %d bytes", MinSecretBytes)
		}
		return nil
	}, files, nil
}

func (o WebsocketOptions) loadSecret() (verify func(string) error, files []string, err error) {
	files = []string{o.SharedSecretFile}
	secret, err := secretfile.Token(o.SharedSecretFile, MinSecretBytes)
	if err != nil {
		return nil, files, &WebsocketError{Err: err}
	}
	tokens := NewJWT(JWTOptions{
		HS256Secret: secret, Issuer: o.Issuer, Audience: o.Audience, MaxClockSkew: o.MaxClockSkew, AnySubject: true, Now: o.Now,
	})
	return func(token string) error {
		_, err := tokens.Verify(token)
		return err
	}, files, nil
}

// check returns why a token does not let anybody in, as an *[Error].
func (t *websocketTokens) check(token string) error { return t.verify.Get()(token) }
