package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// Codes of refusals, as clients are told them.
const (
	codeUnauthorized        = "unauthorized"
	codeForbidden           = "forbidden"
	codeOriginRefused       = "origin_refused"
	codeTooManyAttempts     = "too_many_attempts"
	codeInvalidExecutorID   = "invalid_executor_id"
	codeInvalidHeader       = "invalid_header"
	codeInvalidRole         = "invalid_role"
	codeUnsupportedProfile  = "unsupported_security_profile"
	codeNotWebsocket        = "not_a_websocket"
	codeExecutorNotFound    = "executor_not_found"
	codeExecutorOffline     = "executor_offline"
	codeEnvironmentOffline  = "environment_offline"
	codeExecutorElsewhere   = "executor_elsewhere"
	codeSuperseded          = "registration_superseded"
	codeConnectionLimit     = "connection_limit"
	codeExecutorLimit       = "executor_limit"
	codeShuttingDown        = "shutting_down"
	codePresenceUnavailable = "presence_unavailable"
	codeInternal            = "internal"
	codeNotFound            = "not_found"
)

// Refusal is why a request is refused, as its client is told: in JSON,
// {"error":{"code":…,"message":…}}.
type Refusal struct {
	Status     int           // of HTTP
	Code       string        // for programs
	Message    string        // for people; says what to do where there is something
	RetryAfter time.Duration // when to try again; 0 says nothing
}

func (r *Refusal) Error() string { return r.Message }

func refuse(status int, code, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func superseded(id string) *Refusal {
	return refuse(http.StatusConflict, codeSuperseded,
		"the registration of executor %s was used, has expired, or a later one has connected: register again", id)
}

func shuttingDown() *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Code: codeShuttingDown,
		Message: errClosing.Error() + ": try again", RetryAfter: time.Second}
}

// limitReached is the refusal of whatever would be beyond a limit.
func limitReached(code, limit string, most int, retry time.Duration) *Refusal {
	return &Refusal{Status: http.StatusTooManyRequests, Code: code, RetryAfter: retry,
		Message: fmt.Sprintf("there are as many as %s allows, %d: try again when there are fewer, or raise it", limit, most)}
}

// presenceRetry is when it is worth asking a presence again that is not available.
const presenceRetry = 2 * time.Second

// refusalOf returns what a client is told of err. It does not say more about
// authentication than what kind of credential was wrong.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	if _, ok := errors.AsType[*UnavailableError](err); ok || errors.Is(err, errPresenceSlow) || errors.Is(err, context.DeadlineExceeded) {
		return &Refusal{Status: http.StatusServiceUnavailable, Code: codePresenceUnavailable, RetryAfter: presenceRetry,
			Message: "the hub cannot keep which executors there are at this moment, its log says why: try again"}
	}
	a, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return refuse(http.StatusInternalServerError, codeInternal, "the hub failed; its log says why")
	}
	switch a.Kind {
	case auth.KindTooManyAttempts:
		return &Refusal{Status: http.StatusTooManyRequests, Code: codeTooManyAttempts,
			Message: "too many failed attempts", RetryAfter: max(a.RetryAfter, time.Second)}
	case auth.KindTooManyConnections:
		return &Refusal{Status: http.StatusTooManyRequests, Code: codeConnectionLimit, Message: a.ForCaller, RetryAfter: a.RetryAfter}
	case auth.KindPeerRefused:
		return refuse(http.StatusForbidden, codeForbidden, "%s", a.ForCaller)
	case auth.KindCredentialMissing:
		return refuse(http.StatusUnauthorized, codeUnauthorized, "missing bearer token")
	case auth.KindTokenExpired:
		return refuse(http.StatusUnauthorized, codeUnauthorized, "expired bearer token")
	}
	return refuse(http.StatusUnauthorized, codeUnauthorized, "invalid bearer token")
}

// answer writes the refusal as the whole of an answer.
func (r *Refusal) answer(w http.ResponseWriter) {
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((r.RetryAfter+time.Second-1)/time.Second), 10))
	}
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message = r.Code, r.Message
	answerJSON(w, r.Status, body)
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // URLs have &
	_ = encoder.Encode(body)     // whoever does not read it has gone
}
