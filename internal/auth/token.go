package auth

import (
	"crypto/sha256"
	"crypto/subtle"
)

// MinSecretBytes is how long a capability token or a shared secret must be.
const MinSecretBytes = 32

// TokenHash is the SHA-256 of a capability token, which is all that is kept of
// it.
type TokenHash [sha256.Size]byte

// HashToken returns the hash of a token.
func HashToken(token []byte) TokenHash { return sha256.Sum256(token) }

// FindToken returns the index of the hash that token has, or -1. How long it
// takes does not depend on which of them it is, nor on how much of one is right.
func FindToken(hashes []TokenHash, token string) int {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hashes[i][:], sum[:]), i, found)
	}
	return found
}
