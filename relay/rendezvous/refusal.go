package rendezvous

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// Error codes, as clients receive them, of refusals that other packages make, too.
const (
	CodeUnauthorized    = "unauthorized"
	CodeOriginRefused   = "origin_refused"
	CodeConnectionLimit = "connection_limit"
	CodeProviderFailed  = "provider_failed"
)

// Error codes of this package alone.
const (
	codeForbidden           = "forbidden"
	codeHostUnknown         = "host_unknown"
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
	codeExecutorLimit       = "executor_limit"
	codeShuttingDown        = "shutting_down"
	codePresenceUnavailable = "presence_unavailable"
	codeAuditFailed         = "audit_log_failed"
	codeInternal            = "internal"
	codeNotFound            = "not_found"
)

// Refusal is why a request is rejected. The client receives it as JSON:
// {"error":{"code":…,"message":…}}.
type Refusal struct {
	Status     int           // HTTP status
	Code       string        // for programs
	Message    string        // for people, with a fix where there is one
	RetryAfter time.Duration // 0 means no advice
	Limit      string        // the setting of the limit that is reached; empty for other refusals

	principal string // who was forbidden something, for the audit log; may be empty
}

func (r *Refusal) Error() string { return r.Message }

func newRefusal(status int, code, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// forbidden is the refusal of what the table of principals does not allow.
func forbidden(principal auth.Principal, format string, args ...any) *Refusal {
	refusal := newRefusal(http.StatusForbidden, codeForbidden, "principal %s "+format, append([]any{principal}, args...)...)
	refusal.principal = principal.Name
	return refusal
}

func superseded(id string) *Refusal {
	return newRefusal(http.StatusConflict, codeSuperseded,
		"the registration of executor %s was used, has expired, or a later one has connected: register again", id)
}

// ShuttingDown is the refusal of every request while the hub shuts down.
func ShuttingDown() *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, Code: codeShuttingDown,
		Message: errClosing.Error() + ": try again", RetryAfter: time.Second}
}

// LimitReached is the refusal for exceeding a limit of n, the setting with that name. retry is
// when the client should try again.
func LimitReached(code, limit string, n int, retry time.Duration) *Refusal {
	return &Refusal{Status: http.StatusTooManyRequests, Code: code, RetryAfter: retry, Limit: limit,
		Message: fmt.Sprintf("the limit %s of %d is reached: try again later, or raise it", limit, n)}
}

// presenceRetry is when to retry while the presence is unavailable.
const presenceRetry = 2 * time.Second

// refusalOf returns what a client is told about err. About authentication it
// reveals only which kind of credential was wrong.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	if _, ok := errors.AsType[*UnavailableError](err); ok || errors.Is(err, errPresenceSlow) || errors.Is(err, context.DeadlineExceeded) {
		return &Refusal{Status: http.StatusServiceUnavailable, Code: codePresenceUnavailable, RetryAfter: presenceRetry,
			Message: "the hub cannot store the presence of executors: try again later, and see the hub's log"}
	}
	a, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return newRefusal(http.StatusInternalServerError, codeInternal, "internal error: see the hub's log")
	}
	switch a.Kind {
	case auth.KindTooManyAttempts:
		return &Refusal{Status: http.StatusTooManyRequests, Code: codeTooManyAttempts,
			Message: "too many failed attempts", RetryAfter: max(a.RetryAfter, time.Second)}
	case auth.KindTooManyConnections:
		return &Refusal{Status: http.StatusTooManyRequests, Code: CodeConnectionLimit, Message: a.ForCaller, RetryAfter: a.RetryAfter, Limit: a.Setting}
	case auth.KindPeerRefused:
		return newRefusal(http.StatusForbidden, codeForbidden, "%s", a.ForCaller)
	case auth.KindCredentialMissing:
		return newRefusal(http.StatusUnauthorized, CodeUnauthorized, "missing bearer token")
	case auth.KindTokenExpired:
		return newRefusal(http.StatusUnauthorized, CodeUnauthorized, "expired bearer token")
	}
	return newRefusal(http.StatusUnauthorized, CodeUnauthorized, "%s", cmp.Or(a.ForCaller, "invalid bearer token"))
}

// write writes the refusal as the response.
func (r *Refusal) write(w http.ResponseWriter) {
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
	writeJSON(w, r.Status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // URLs contain &
	_ = encoder.Encode(body)     // fails only if the client is gone
}
