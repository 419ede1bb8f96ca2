package auth

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// JWTOptions configure the verification of signed tokens. At least one key is
// required. A token is accepted only with the algorithm of a configured key, so
// that its own header does not choose.
type JWTOptions struct {
	HS256Secret    []byte            // at least MinSecretBytes; nil accepts no HS256
	EdDSAPublicKey ed25519.PublicKey // nil accepts no EdDSA
	Issuer         string            // required iss; empty accepts any
	Audience       string            // required in aud; empty accepts any
	MaxClockSkew   time.Duration     // tolerated clock difference
	AnySubject     bool              // sub may be absent
	Now            func() time.Time  // the clock; nil is time.Now
}

// JWT verifies signed tokens. It may be used concurrently.
type JWT struct {
	opts   JWTOptions
	parser *jwt.Parser
}

// NewJWT returns a verifier. The options must be valid.
func NewJWT(opts JWTOptions) *JWT {
	var methods []string
	if opts.HS256Secret != nil {
		methods = append(methods, jwt.SigningMethodHS256.Alg())
	}
	if opts.EdDSAPublicKey != nil {
		methods = append(methods, jwt.SigningMethodEdDSA.Alg())
	}
	settings := []jwt.ParserOption{
		// An empty list would allow every method.
		jwt.WithValidMethods(append(methods, "none of these")),
		jwt.WithExpirationRequired(), jwt.WithLeeway(opts.MaxClockSkew), jwt.WithStrictDecoding(),
	}
	if opts.Now != nil {
		settings = append(settings, jwt.WithTimeFunc(opts.Now))
	}
	return &JWT{opts: opts, parser: jwt.NewParser(settings...)}
}

// Verify returns the subject of a valid token. exp is required and, unless the
// options say otherwise, sub; nbf is checked if present. The error is an *[Error]
// whose kind says what is wrong.
func (j *JWT) Verify(token string) (subject string, err error) {
	// A map, because a struct would also match claims that differ in case, which
	// an issuer may not control.
	claims := jwt.MapClaims{}
	if _, err := j.parser.ParseWithClaims(token, claims, j.key); err != nil {
		return "", jwtError(jwtKind(err), err)
	}
	// Claims of the wrong type count as absent.
	issuer, _ := claims.GetIssuer()
	audience, _ := claims.GetAudience()
	subject, _ = claims.GetSubject()
	switch {
	case j.opts.Issuer != "" && issuer != j.opts.Issuer:
		return "", jwtError(KindIssuerMismatch, fmt.Errorf("iss is not %q", j.opts.Issuer))
	case j.opts.Audience != "" && !slices.Contains(audience, j.opts.Audience):
		return "", jwtError(KindAudienceMismatch, fmt.Errorf("aud does not contain %q", j.opts.Audience))
	case subject == "" && !j.opts.AnySubject:
		return "", jwtError(KindTokenInvalid, errors.New("sub is missing"))
	}
	return subject, nil
}

func jwtError(kind Kind, err error) error {
	return &Error{Kind: kind, Subject: "bearer of a signed token", Err: err}
}

// key returns the key for the algorithm of a token.
func (j *JWT) key(token *jwt.Token) (any, error) {
	if _, ok := token.Header["crit"]; ok {
		return nil, errors.New("critical extensions are not supported")
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

// jwtKind maps an error of the library. A token with a wrong signature is invalid
// whatever its claims are.
func jwtKind(err error) Kind {
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return KindTokenInvalid
	case errors.Is(err, jwt.ErrTokenExpired):
		return KindTokenExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return KindTokenNotYetValid
	}
	return KindTokenInvalid
}
