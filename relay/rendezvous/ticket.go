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

// signer creates and verifies the sig of URLs.
type signer struct{ key []byte }

func (s signer) mac(payload string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("execwire relay url\x00" + payload))
	return mac.Sum(nil)
}

// sign returns the sig for a ticket.
func (s signer) sign(t ticket) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic("rendezvous: a ticket cannot be encoded: " + err.Error())
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.mac(payload))
}

// verify returns the ticket of a sig, if it is valid now for that role and
// executor.
func (s signer) verify(sig string, want role, executor string, now time.Time) (ticket, error) {
	payload, mac, _ := strings.Cut(sig, ".")
	given, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(given, s.mac(payload)) {
		return ticket{}, errTicketInvalid
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var t ticket
	if err != nil || json.Unmarshal(text, &t) != nil || t.Role != want || t.Executor != executor {
		return ticket{}, errTicketInvalid
	}
	if now.Unix() >= t.Until {
		return ticket{}, errTicketExpired
	}
	return t, nil
}
