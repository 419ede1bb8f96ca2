package executor

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"github.com/golang-jwt/jwt/v5"
)

// Sizes of RSA keys that are accepted, in bits.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// keyOf finds the key of a token in a set of keys by the token's kid. The
// algorithm is determined by the key, not by the token.
func keyOf(set object) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		if _, ok := token.Header["crit"]; ok {
			return nil, errors.New("critical extensions are not supported")
		}
		name, ok := token.Header["kid"].(string)
		if !ok || name == "" {
			return nil, errors.New("the header has no kid")
		}
		var keys []object
		if err := json.Unmarshal(set["keys"], &keys); err != nil {
			return nil, errors.New("the authority's response has no keys")
		}
		for _, members := range keys {
			if kid, _ := members.stringMember("kid"); kid != name {
				continue
			}
			method, key, err := parseKey(members)
			switch {
			case err != nil:
				return nil, fmt.Errorf("the authority's key is unusable: %w", err)
			case token.Method != method:
				return nil, fmt.Errorf("signed with %s, but the authority's key is for %s", token.Method.Alg(), method.Alg())
			}
			return key, nil
		}
		return nil, fmt.Errorf("kid %q is not trusted", truncate(name, 64))
	}
}

// parseKey parses a public key of RFC 7517.
func parseKey(members object) (jwt.SigningMethod, crypto.PublicKey, error) {
	kind, _ := members.stringMember("kty")
	curve, _ := members.stringMember("crv")
	var method jwt.SigningMethod
	var key crypto.PublicKey
	var err error
	switch {
	case kind == "RSA":
		method = jwt.SigningMethodRS256
		key, err = parseRSA(members)
	case kind == "OKP" && curve == "Ed25519":
		method = jwt.SigningMethodEdDSA
		key, err = parseEd25519(members)
	default:
		err = errors.New("neither RSA nor Ed25519")
	}
	if err != nil {
		return nil, nil, err
	}
	if use, ok := members.stringMember("use"); ok && use != "sig" {
		return nil, nil, errors.New("not for signatures")
	}
	if algorithm, ok := members.stringMember("alg"); ok && algorithm != method.Alg() {
		return nil, nil, errors.New("not for " + method.Alg())
	}
	return method, key, nil
}

func parseRSA(members object) (*rsa.PublicKey, error) {
	n, err := base64Member(members, "n")
	if err != nil {
		return nil, err
	}
	e, err := base64Member(members, "e")
	if err != nil {
		return nil, err
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("%d bits; %d to %d are accepted", bits, minRSABits, maxRSABits)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("the exponent is not accepted")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func parseEd25519(members object) (ed25519.PublicKey, error) {
	x, err := base64Member(members, "x")
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%d bytes; Ed25519 has %d", len(x), ed25519.PublicKeySize)
	}
	return x, nil
}

func base64Member(members object, name string) ([]byte, error) {
	text, ok := members.stringMember(name)
	bytes, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil, fmt.Errorf("%s is not base64url", name)
	}
	return bytes, nil
}
