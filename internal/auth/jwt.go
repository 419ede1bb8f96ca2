package auth

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// JWTOptions say which signed tokens are good. At least one key is needed; a
// token is accepted only with the algorithm of a key that is there, so that its
// own header never chooses.
type JWTOptions struct {
	HS256Secret    []byte            // at least MinSecretBytes; nil accepts no HS256
	EdDSAPublicKey ed25519.PublicKey // nil accepts no EdDSA
	Issuer         string            // required iss; empty takes any
	Audience       string            // required among aud; empty takes any
	MaxClockSkew   time.Duration     // by how much clocks may differ
	AnySubject     bool              // sub may be absent
	Now            func() time.Time  // the clock; nil is time.Now
}

// JWT verifies signed tokens. It may be used concurrently.
type JWT struct {
	opts   JWTOptions
	parser *jwt.Parser
}

// NewJWT returns a verifier. The options must be right: keys of the right
// length, one at least.
func NewJWT(opts JWTOptions) *JWT {
	var methods []string
	if opts.HS256Secret != nil {
		methods = append(methods, jwt.SigningMethodHS256.Alg())
	}
	if opts.EdDSAPublicKey != nil {
		methods = append(methods, jwt.SigningMethodEdDSA.Alg())
	}
	settings := []jwt.ParserOption{
		// An empty list would accept every method.
		jwt.WithValidMethods(append(methods, "none of these")),
		jwt.WithExpirationRequired(), jwt.WithLeeway(opts.MaxClockSkew), jwt.WithStrictDecoding(),
	}
	if opts.Now != nil {
		settings = append(settings, jwt.WithTimeFunc(opts.Now))
	}
	return &JWT{opts: opts, parser: jwt.NewParser(settings...)}
}

// Verify returns the subject of a token that is good now. A token needs exp and,
// unless the options say otherwise, sub; nbf is honoured. The error is an *[Error] whose kind says why it is not.
func (j *JWT) Verify(token string) (subject string, err error) {
	// A map, because a struct would also be filled from claims whose names differ
	// in case, which an issuer may leave to others to fill in.
	claims := jwt.MapClaims{}
	if _, err := j.parser.ParseWithClaims(token, claims, j.key); err != nil {
		return "", jwtError(jwtKind(err), err)
	}
	// What has a wrong type is as good as none.
	issuer, _ := claims.GetIssuer()
	audience, _ := claims.GetAudience()
	subject, _ = claims.GetSubject()
	switch {
	case j.opts.Issuer != "" && issuer != j.opts.Issuer:
		return "", jwtError(KindIssuerMismatch, fmt.Errorf("its iss is not %q", j.opts.Issuer))
	case j.opts.Audience != "" && !slices.Contains(audience, j.opts.Audience):
		return "", jwtError(KindAudienceMismatch, fmt.Errorf("its aud has no %q", j.opts.Audience))
	case subject == "" && !j.opts.AnySubject:
		return "", jwtError(KindTokenInvalid, errors.New("it has no sub"))
	}
	return subject, nil
}

func jwtError(kind Kind, err error) error {
	return &Error{Kind: kind, Subject: "bearer of a signed token", Err: err}
}

// key returns the key for the algorithm of a token, whose signature is then
// verified with it.
func (j *JWT) key(token *jwt.Token) (any, error) {
	if _, ok := token.Header["crit"]; ok {
		return nil, errors.New("it has critical extensions, which are not understood")
	}
	switch token.Method {
	case jwt.SigningMethodHS256:
		return j.opts.HS256Secret, nil
	case jwt.SigningMethodEdDSA:
		return j.opts.EdDSAPublicKey, nil
	default:
		return nil, fmt.Errorf("algorithm %s is not accepted", token.Method.Alg())
	}
}

// jwtKind maps what the library says. A token with a wrong signature is invalid
// whatever else it says: its claims are anybody's.
func jwtKind(err error) Kind {
	for _, known := range []struct {
		err  error
		kind Kind
	}{
		{jwt.ErrTokenMalformed, KindTokenInvalid},
		{jwt.ErrTokenUnverifiable, KindTokenInvalid},
		{jwt.ErrTokenSignatureInvalid, KindTokenInvalid},
		{jwt.ErrTokenRequiredClaimMissing, KindTokenInvalid},
		{jwt.ErrTokenExpired, KindTokenExpired},
		{jwt.ErrTokenNotValidYet, KindTokenNotYetValid},
	} {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	return KindTokenInvalid
}
