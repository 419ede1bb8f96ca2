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

// keyOf finds the key of a token in a set of keys, by the name that the token
// gives. The key decides about the algorithm, and not the token.
func keyOf(set object) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		if _, ok := token.Header["crit"]; ok {
			return nil, errors.New("it has critical extensions, which are not understood")
		}
		name, ok := token.Header["kid"].(string)
		if !ok || name == "" {
			return nil, errors.New("its header does not include a kid")
		}
		var keys []object
		if err := json.Unmarshal(set["keys"], &keys); err != nil {
			return nil, errors.New("the authority's answer has no keys")
		}
		for _, members := range keys {
			if kid, _ := members.text("kid"); kid != name {
				continue
			}
			method, key, err := parseKey(members)
			switch {
			case err != nil:
				return nil, fmt.Errorf("the authority's key for it cannot be used: %w", err)
			case token.Method != method:
				return nil, fmt.Errorf("it is signed with %s, and the authority's key is for %s", token.Method.Alg(), method.Alg())
			}
			return key, nil
		}
		return nil, fmt.Errorf("its kid %q is not trusted", shorten(name, 64))
	}
}

// parseKey reads a public key of RFC 7517.
func parseKey(members object) (jwt.SigningMethod, crypto.PublicKey, error) {
	kind, _ := members.text("kty")
	curve, _ := members.text("crv")
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
		err = errors.New("it is neither of RSA nor of Ed25519")
	}
	if err != nil {
		return nil, nil, err
	}
	if use, ok := members.text("use"); ok && use != "sig" {
		return nil, nil, errors.New("it is not for signatures")
	}
	if algorithm, ok := members.text("alg"); ok && algorithm != method.Alg() {
		return nil, nil, errors.New("it is for another algorithm than " + method.Alg())
	}
	return method, key, nil
}

func parseRSA(members object) (*rsa.PublicKey, error) {
	n, err := bytesOf(members, "n")
	if err != nil {
		return nil, err
	}
	e, err := bytesOf(members, "e")
	if err != nil {
		return nil, err
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("it has %d bits, and %d to %d are accepted", bits, minRSABits, maxRSABits)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("its exponent is not accepted")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func parseEd25519(members object) (ed25519.PublicKey, error) {
	x, err := bytesOf(members, "x")
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("it has %d bytes, and Ed25519 has %d", len(x), ed25519.PublicKeySize)
	}
	return x, nil
}

func bytesOf(members object, name string) ([]byte, error) {
	text, ok := members.text(name)
	bytes, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil, fmt.Errorf("its %s is not base64url", name)
	}
	return bytes, nil
}
