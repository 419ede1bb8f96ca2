package rendezvous

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// role is the kind of peer that a websocket belongs to.
type role string

const (
	roleExecutor role = "executor"
	roleHarness  role = "harness"
)

// ticket is what the sig of a URL certifies: who may use it, for what, until
// when.
type ticket struct {
	Role      role   `json:"r"`
	Executor  string `json:"e"`
	Epoch     uint64 `json:"n,omitempty"` // of executors
	Principal string `json:"p"`
	Until     int64  `json:"t"` // Unix time
}

var (
	errTicketInvalid = errors.New("the sig is not from this hub, or belongs to another URL")
	errTicketExpired = errors.New("the URL has expired")
)

// purposeURL is the purpose of the sig of a URL.
const purposeURL = "execwire relay url"

// Signer signs claims and verifies them. It may be used concurrently.
type Signer struct {
	// Key is the secret.
	Key []byte
	// Purpose distinguishes claims that are signed with the same key. It contains no
	// zero byte.
	Purpose string
}

func (s Signer) mac(payload string) []byte {
	mac := hmac.New(sha256.New, s.Key)
	mac.Write([]byte(s.Purpose + "\x00" + payload))
	return mac.Sum(nil)
}

// Sign returns a claim as JSON with its signature, as letters, digits, - and _ with a
// dot in between. The claim must be encodable as JSON.
func (s Signer) Sign(claim any) string {
	text, err := json.Marshal(claim)
	if err != nil {
		panic("rendezvous: a claim cannot be encoded: " + err.Error())
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.mac(payload))
}

// Verify decodes a signed claim, and reports whether its signature is valid.
func (s Signer) Verify(signed string, claim any) bool {
	payload, mac, _ := strings.Cut(signed, ".")
	given, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(given, s.mac(payload)) {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	return err == nil && json.Unmarshal(text, claim) == nil
}

// verifyTicket returns the ticket of a sig, if it is valid now for that role and
// executor.
func verifyTicket(s Signer, sig string, want role, executor string, now time.Time) (ticket, error) {
	var t ticket
	switch {
	case !s.Verify(sig, &t), t.Role != want, t.Executor != executor:
		return ticket{}, errTicketInvalid
	case now.Unix() >= t.Until:
		return ticket{}, errTicketExpired
	}
	return t, nil
}
