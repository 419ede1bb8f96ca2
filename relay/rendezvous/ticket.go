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

// role is which end a websocket is of.
type role string

const (
	roleExecutor role = "executor"
	roleHarness  role = "harness"
)

// ticket is what the sig of a URL says: who may use it, for what, until when.
type ticket struct {
	Role      role   `json:"r"`
	Executor  string `json:"e"`
	Epoch     uint64 `json:"n,omitempty"` // of executors
	Principal string `json:"p"`
	Until     int64  `json:"t"` // in Unix seconds
}

var (
	errTicketInvalid = errors.New("the URL's sig is not one of this hub, or belongs to another URL")
	errTicketExpired = errors.New("the URL has expired")
)

// signer makes and checks the sig of URLs.
type signer struct{ key []byte }

func (s signer) mac(payload string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("execwire relay url\x00" + payload))
	return mac.Sum(nil)
}

// sign returns the sig of a ticket.
func (s signer) sign(t ticket) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic("rendezvous: a ticket cannot be encoded: " + err.Error())
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.mac(payload))
}

// check returns the ticket of a sig that is good now, for that role and executor.
func (s signer) check(sig string, as role, executor string, now time.Time) (ticket, error) {
	payload, mac, _ := strings.Cut(sig, ".")
	given, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(given, s.mac(payload)) {
		return ticket{}, errTicketInvalid
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var t ticket
	if err != nil || json.Unmarshal(text, &t) != nil || t.Role != as || t.Executor != executor {
		return ticket{}, errTicketInvalid
	}
	if now.Unix() >= t.Until {
		return ticket{}, errTicketExpired
	}
	return t, nil
}
