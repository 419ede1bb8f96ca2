package gateway

import (
	"errors"
	"net/http"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// Refusal is why a request gets no websocket, as the client is told.
type Refusal struct {
	Status     int           // of HTTP
	Text       string        // the whole body
	RetryAfter time.Duration // when to try again; 0 says nothing
}

// notReady is the answer of a server that is draining, and of a gateway whose
// upstream does not answer.
var notReady = &Refusal{Status: http.StatusServiceUnavailable, Text: "no clients are taken now: the server is shutting down, or cannot be reached"}

// refusalTexts are the words of the reference. The kinds that are not here are
// not told apart.
var refusalTexts = map[auth.Kind]string{
	auth.KindCredentialMissing: "missing websocket bearer token",
	auth.KindHeaderInvalid:     "invalid authorization header",
	auth.KindTokenExpired:      "expired websocket jwt",
	auth.KindTokenNotYetValid:  "websocket jwt is not valid yet",
	auth.KindIssuerMismatch:    "websocket jwt issuer mismatch",
	auth.KindAudienceMismatch:  "websocket jwt audience mismatch",
}

// RefusalOf returns how a client is told of err, which authentication returned;
// signed is whether tokens are signed rather than secret. It does not say more
// than the reference does.
func RefusalOf(err error, signed bool) *Refusal {
	refused, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return &Refusal{Status: http.StatusInternalServerError, Text: "failed to authenticate"}
	}
	switch refused.Kind {
	case auth.KindOnBehalfOfRefused: // which the reference does not have
		return &Refusal{Status: http.StatusForbidden, Text: "the caller may not act on behalf of whom it named"}
	case auth.KindPeerRefused: // nor this
		return &Refusal{Status: http.StatusForbidden, Text: refused.ForCaller}
	case auth.KindTooManyConnections: // nor this
		return &Refusal{Status: http.StatusTooManyRequests, Text: refused.ForCaller, RetryAfter: max(refused.RetryAfter, time.Second)}
	case auth.KindTooManyAttempts:
		return &Refusal{Status: http.StatusTooManyRequests, Text: "too many failed attempts", RetryAfter: max(refused.RetryAfter, time.Second)}
	}
	text, known := refusalTexts[refused.Kind]
	switch {
	case known:
	case signed:
		text = "invalid websocket jwt"
	default:
		text = "invalid websocket bearer token"
	}
	return &Refusal{Status: http.StatusUnauthorized, Text: text}
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
