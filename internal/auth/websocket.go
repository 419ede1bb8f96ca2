package auth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// WebsocketAuth is how websocket clients authenticate.
type WebsocketAuth string

// Values of WebsocketAuth.
const (
	WebsocketAuthOff         WebsocketAuth = "off"                 // not at all
	WebsocketCapabilityToken WebsocketAuth = "capability-token"    // with a shared token
	WebsocketSignedToken     WebsocketAuth = "signed-bearer-token" // with tokens signed with HS256
)

// WebsocketOptions configure the authentication of websocket clients. The zero
// value requires none.
type WebsocketOptions struct {
	// Auth is the method; empty means [WebsocketAuthOff].
	Auth WebsocketAuth
	// TokenFile contains the token of WebsocketCapabilityToken; surrounding white
	// space is ignored. TokenSHA256 is its SHA-256 in hexadecimal. One of them is
	// required.
	TokenFile, TokenSHA256 string
	// SharedSecretFile contains the HS256 secret of WebsocketSignedToken.
	SharedSecretFile string
	// Issuer and Audience are required of signed tokens, unless empty.
	Issuer, Audience string
	// MaxClockSkew is the tolerated clock difference.
	MaxClockSkew time.Duration
	// Now is the clock for signed tokens; nil means time.Now.
	Now func() time.Time
}

// Websocket is the principal of clients with a token of [WebsocketOptions]. A
// table of principals may list it to restrict its permissions; otherwise it has
// all.
var Websocket = Principal{Name: "ws"}

// websocketTokens verifies tokens of [WebsocketOptions]. It may be used
// concurrently.
type websocketTokens struct {
	verify *secretfile.Watched[func(token string) error]
}

// newWebsocketTokens returns nil if the options require no token. Files are
// reread after they changed; if the new version is invalid, onError is called and
// the previous one stays in use. The error is a [*WebsocketError].
func newWebsocketTokens(opts WebsocketOptions, onError func(error)) (*websocketTokens, error) {
	var load func() (func(string) error, []string, error)
	switch opts.Auth {
	case "", WebsocketAuthOff:
		return nil, nil
	case WebsocketCapabilityToken:
		load = opts.loadToken
	case WebsocketSignedToken:
		load = opts.loadSecret
	default:
		return nil, &WebsocketError{Err: fmt.Errorf("unknown authentication method %q", opts.Auth)}
	}
	verify, err := secretfile.Watch(load, onError, nil)
	if err != nil {
		return nil, err
	}
	return &websocketTokens{verify: verify}, nil
}

// WebsocketError means that the options or their files are invalid.
type WebsocketError struct {
	// Err is the reason. It contains no secret.
	Err error
}

func (e *WebsocketError) Error() string {
	return fmt.Sprintf("cannot authenticate websocket clients: %v", e.Err)
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
		if bytes.ContainsFunc(text, notTokenChar) {
			return nil, files, &WebsocketError{Err: &secretfile.Error{File: o.TokenFile, Problem: "has characters that cannot be sent",
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
			return newError(KindTokenInvalid, "bearer of a token", "it is not the websocket token")
		}
		if len(token) < MinSecretBytes { // the hash does not reveal the length
			return newError(KindTokenInvalid, "bearer of a token", "it is the websocket token, but has less than %d bytes", MinSecretBytes)
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

// check verifies a token. The error is an *[Error].
func (t *websocketTokens) check(token string) error { return t.verify.Get()(token) }
