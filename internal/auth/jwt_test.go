package auth_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

var (
	secret         = []byte(strings.Repeat("s3cret", 8))
	signingSeed    = []byte(strings.Repeat("e", ed25519.SeedSize))
	signingKey     = ed25519.NewKeyFromSeed(signingSeed)
	verifyingKey   = signingKey.Public().(ed25519.PublicKey)
	jwtNow         = time.Unix(1_800_000_000, 0)
	goodClaims     = claims{"iss": "issuer", "aud": "server", "sub": "ci@example", "exp": jwtNow.Unix() + 60}
	bothAlgorithms = auth.JWTOptions{
		HS256Secret: secret, EdDSAPublicKey: verifyingKey, Issuer: "issuer", Audience: "server",
		MaxClockSkew: 30 * time.Second, Now: func() time.Time { return jwtNow },
	}
)

type claims map[string]any

// with returns a copy with one claim changed, or removed if nil.
func (c claims) with(name string, value any) claims {
	changed := claims{}
	for n, v := range c {
		changed[n] = v
	}
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return changed
}

// forge builds a token, valid or not.
func forge(header map[string]any, body claims, sign func(text []byte) []byte) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(header) + "." + part(body)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(text)))
}

func mac(newHash func() hash.Hash, key []byte) func([]byte) []byte {
	return func(text []byte) []byte {
		m := hmac.New(newHash, key)
		m.Write(text)
		return m.Sum(nil)
	}
}

func hs256(body claims) string {
	return forge(map[string]any{"alg": "HS256", "typ": "JWT"}, body, mac(sha256.New, secret))
}

func eddsa(body claims) string {
	return forge(map[string]any{"alg": "EdDSA", "typ": "JWT"}, body, func(text []byte) []byte { return ed25519.Sign(signingKey, text) })
}

func nothing([]byte) []byte { return nil }

func TestJWT_Valid(t *testing.T) {
	j := auth.NewJWT(bothAlgorithms)
	for name, token := range map[string]string{
		"HS256":             hs256(goodClaims),
		"EdDSA":             eddsa(goodClaims),
		"audience in list":  hs256(goodClaims.with("aud", []string{"other", "server"})),
		"expired in skew":   hs256(goodClaims.with("exp", jwtNow.Unix()-29)),
		"not before, skew":  hs256(goodClaims.with("nbf", jwtNow.Unix()+29)),
		"not before, past":  eddsa(goodClaims.with("nbf", jwtNow.Unix()-1)),
		"issued in future":  hs256(goodClaims.with("iat", jwtNow.Unix()+1000)),
		"fractions":         hs256(goodClaims.with("exp", float64(jwtNow.Unix())+0.5)),
		"further claims":    hs256(goodClaims.with("role", "admin")),
		"key named in head": forge(map[string]any{"alg": "HS256", "kid": "../../etc/passwd", "jku": "http://evil"}, goodClaims, mac(sha256.New, secret)),
	} {
		if subject, err := j.Verify(token); err != nil || subject != "ci@example" {
			t.Errorf("%s: %q, %v", name, subject, err)
		}
	}
}

func TestJWT_Invalid_Fails(t *testing.T) {
	good := hs256(goodClaims)
	cut := strings.LastIndexByte(good, '.')
	header := func(alg string) map[string]any { return map[string]any{"alg": alg} }
	for name, tc := range map[string]struct {
		token string
		kind  auth.Kind
	}{
		"empty":                   {"", auth.KindTokenInvalid},
		"no token":                {"abc", auth.KindTokenInvalid},
		"two parts":               {good[:cut], auth.KindTokenInvalid},
		"four parts":              {good + ".x", auth.KindTokenInvalid},
		"no signature":            {good[:cut+1], auth.KindTokenInvalid},
		"other signature":         {hs256(goodClaims.with("sub", "x"))[:cut] + good[cut:], auth.KindTokenInvalid},
		"padded":                  {good + "=", auth.KindTokenInvalid},
		"other secret":            {forge(header("HS256"), goodClaims, mac(sha256.New, []byte("x"))), auth.KindTokenInvalid},
		"empty secret":            {forge(header("HS256"), goodClaims, mac(sha256.New, nil)), auth.KindTokenInvalid},
		"none":                    {forge(header("none"), goodClaims, nothing), auth.KindTokenInvalid},
		"None":                    {forge(header("None"), goodClaims, nothing), auth.KindTokenInvalid},
		"our placeholder":         {forge(header("none of these"), goodClaims, nothing), auth.KindTokenInvalid},
		"no algorithm":            {forge(map[string]any{}, goodClaims, mac(sha256.New, secret)), auth.KindTokenInvalid},
		"HS512":                   {forge(header("HS512"), goodClaims, mac(sha512.New, secret)), auth.KindTokenInvalid},
		"public key as secret":    {forge(header("HS256"), goodClaims, mac(sha256.New, verifyingKey)), auth.KindTokenInvalid},
		"HS256 declared as EdDSA": {forge(header("EdDSA"), goodClaims, mac(sha256.New, secret)), auth.KindTokenInvalid},
		"critical extension":      {forge(map[string]any{"alg": "HS256", "crit": []string{"x"}}, goodClaims, mac(sha256.New, secret)), auth.KindTokenInvalid},
		"no exp":                  {hs256(goodClaims.with("exp", nil)), auth.KindTokenInvalid},
		"exp is text":             {hs256(goodClaims.with("exp", "tomorrow")), auth.KindTokenInvalid},
		"no sub":                  {hs256(goodClaims.with("sub", nil)), auth.KindTokenInvalid},
		"expired":                 {hs256(goodClaims.with("exp", jwtNow.Unix()-31)), auth.KindTokenExpired},
		"expired, wrong secret":   {forge(header("HS256"), goodClaims.with("exp", 1), mac(sha256.New, []byte("x"))), auth.KindTokenInvalid},
		"not yet":                 {eddsa(goodClaims.with("nbf", jwtNow.Unix()+31)), auth.KindTokenNotYetValid},
		"other issuer":            {hs256(goodClaims.with("iss", "other")), auth.KindIssuerMismatch},
		"no issuer":               {hs256(goodClaims.with("iss", nil)), auth.KindIssuerMismatch},
		"other audience":          {hs256(goodClaims.with("aud", "other")), auth.KindAudienceMismatch},
		"other audiences":         {hs256(goodClaims.with("aud", []string{"a", "b"})), auth.KindAudienceMismatch},
		"no audience":             {hs256(goodClaims.with("aud", nil)), auth.KindAudienceMismatch},
	} {
		subject, err := auth.NewJWT(bothAlgorithms).Verify(tc.token)
		var typed *auth.Error
		if !errors.As(err, &typed) || typed.Kind != tc.kind || subject != "" {
			t.Errorf("%s: %q, %v, want an Error of kind %v", name, subject, err, tc.kind)
		}
	}
}

// Only the configuration determines the algorithms.
func TestJWT_Algorithm_IsThatOfKey(t *testing.T) {
	onlySecret, onlyPublic, none := bothAlgorithms, bothAlgorithms, bothAlgorithms
	onlySecret.EdDSAPublicKey, onlyPublic.HS256Secret = nil, nil
	none.EdDSAPublicKey, none.HS256Secret = nil, nil
	asSecret := forge(map[string]any{"alg": "HS256"}, goodClaims, mac(sha256.New, nil))
	for name, tc := range map[string]struct {
		opts  auth.JWTOptions
		token string
		ok    bool
	}{
		"secret, HS256":         {onlySecret, hs256(goodClaims), true},
		"secret, EdDSA":         {onlySecret, eddsa(goodClaims), false},
		"public, EdDSA":         {onlyPublic, eddsa(goodClaims), true},
		"public, HS256":         {onlyPublic, hs256(goodClaims), false},
		"public, HS256 of none": {onlyPublic, asSecret, false},
		"none, HS256":           {none, asSecret, false},
		"none, none":            {none, forge(map[string]any{"alg": "none"}, goodClaims, nothing), false},
	} {
		if _, err := auth.NewJWT(tc.opts).Verify(tc.token); (err == nil) != tc.ok {
			t.Errorf("%s: %v, want accepted: %v", name, err, tc.ok)
		}
	}
}

func TestJWT_WithoutIssuerAndAudience_AcceptsAny(t *testing.T) {
	opts := bothAlgorithms
	opts.Issuer, opts.Audience = "", ""
	if _, err := auth.NewJWT(opts).Verify(hs256(goodClaims.with("iss", "x").with("aud", nil))); err != nil {
		t.Error(err)
	}
}

// Claim names are compared exactly. A claim that differs in case is ignored: its value may
// come from another party than the issuer.
func TestJWT_ClaimNames_AreExact(t *testing.T) {
	j := auth.NewJWT(bothAlgorithms)
	// Later members would win.
	subject, err := j.Verify(hs256(goodClaims.with("suB", "admin@example").with("ſub", "admin@example")))
	if err != nil || subject != "ci@example" {
		t.Errorf("with another subject: %q, %v", subject, err)
	}
	for name, body := range map[string]claims{
		"expired": goodClaims.with("exp", jwtNow.Unix()-3600).with("exP", jwtNow.Unix()+3600),
		"no exp":  goodClaims.with("exp", nil).with("EXP", jwtNow.Unix()+3600),
		"no sub":  goodClaims.with("sub", nil).with("SUB", "ci@example"),
		"no aud":  goodClaims.with("aud", nil).with("Aud", "server"),
		"no iss":  goodClaims.with("iss", nil).with("Iss", "issuer"),
	} {
		if subject, err := j.Verify(hs256(body)); err == nil {
			t.Errorf("%s: %q is accepted", name, subject)
		}
	}
}
