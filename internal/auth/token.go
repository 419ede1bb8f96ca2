package auth

import (
	"crypto/sha256"
	"crypto/subtle"
)

// MinSecretBytes is the minimum length of a capability token or a shared secret.
const MinSecretBytes = 32

// TokenHash is the SHA-256 of a capability token. The token itself is not stored.
type TokenHash [sha256.Size]byte

// HashToken returns the hash of a token.
func HashToken(token []byte) TokenHash { return sha256.Sum256(token) }

// FindToken returns the index of the hash of token, or -1, in constant time for a
// number of hashes.
func FindToken(hashes []TokenHash, token string) int {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hashes[i][:], sum[:]), i, found)
	}
	return found
}
