package wsserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// Refusal is the response to a request that is refused.
type Refusal struct {
	Status     int           // HTTP status
	Text       string        // body
	RetryAfter time.Duration // 0 sends no header
}

// notReady is the response of a draining server, and of a gateway without its upstream.
var notReady = &Refusal{Status: http.StatusServiceUnavailable, Text: "no clients are accepted now: the server is shutting down, or cannot be reached"}

// hostUnknown is the response to a request for another host.
func hostUnknown(r *http.Request) *Refusal {
	return &Refusal{Status: http.StatusMisdirectedRequest, Text: fmt.Sprintf("the Host %.100q is not a name of this server: "+
		"use its IP address or localhost, or add the name to its setting allowed_hosts\n", r.Host)}
}

// refusalTexts are the reference's texts. Other kinds have one text.
var refusalTexts = map[auth.Kind]string{
	auth.KindCredentialMissing: "missing websocket bearer token",
	auth.KindHeaderInvalid:     "invalid authorization header",
	auth.KindTokenExpired:      "expired websocket jwt",
	auth.KindTokenNotYetValid:  "websocket jwt is not valid yet",
	auth.KindIssuerMismatch:    "websocket jwt issuer mismatch",
	auth.KindAudienceMismatch:  "websocket jwt audience mismatch",
}

// RefusalOf returns the response for an authentication error; signed reports whether
// tokens are signed rather than secret. It reveals no more than the reference does.
func RefusalOf(err error, signed bool) *Refusal {
	refused, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return &Refusal{Status: http.StatusInternalServerError, Text: "failed to authenticate"}
	}
	switch refused.Kind {
	case auth.KindOnBehalfOfRefused: // not in the reference
		return &Refusal{Status: http.StatusForbidden, Text: "the caller may not act on behalf of whom it named"}
	case auth.KindPeerRefused: // not in the reference
		return &Refusal{Status: http.StatusForbidden, Text: refused.ForCaller}
	case auth.KindTooManyConnections: // not in the reference
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

// seconds rounds d up to seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Answer writes the refusal as the response.
func (f *Refusal) Answer(w http.ResponseWriter) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(f.RetryAfter), 10))
	}
	if f.Text != "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Text)) // the client is gone
}
