package rendezvous

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
)

// Auditor records what the callers of requests do in the audit log. A nil Auditor records
// nothing. It may be used concurrently.
type Auditor struct {
	// Log is the audit log. Required.
	Log *audit.Log
	// Caller returns the credential and the peer of a request. Required.
	Caller func(r *http.Request) audit.Caller
}

// apiRelay is the API of a hub in the audit log.
const apiRelay = "relay"

// Begin records that a principal is about to do something, for which record has the
// action and what it is about. The returned function records the result; nil is success.
// The error is the refusal of an action that must not be done because it cannot be
// recorded. r may be nil for what previews do for requests of the principal.
func (a *Auditor) Begin(r *http.Request, principal string, record *audit.Record) (end func(error), err error) {
	if a == nil {
		return func(error) {}, nil
	}
	if r != nil {
		credential := record.Credential // of what has its own, such as a link
		record.Caller = a.Caller(r)
		record.Credential = cmp.Or(credential, record.Credential)
	}
	record.Call = a.Log.NewCall()
	record.Principal, record.API = principal, apiRelay
	record.Rule = rules[record.Action]
	begun := time.Now()
	result := *record
	if a.Log.Intend(record) != nil {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Code: codeAuditFailed, RetryAfter: auditRetry,
			Message: "the hub's audit log cannot be written, so that it does not do this: its operator has to free space on the disk, or see its log"}
	}
	return func(err error) {
		result.Type, result.Decision, result.Status = audit.Result, audit.DecisionAllowed, "OK"
		result.DurationMicros = time.Since(begun).Microseconds()
		if err != nil {
			refusal := refusalOf(err)
			setRefusal(&result, refusal)
			if isDenial(refusal) {
				result.Decision, result.Rule = audit.DecisionDenied, refusal.Code
			}
		}
		a.Log.Write(&result)
	}, nil
}

// auditRetry is when to retry while the audit log cannot be written.
const auditRetry = 2 * time.Second

// rules are what allowed the actions: members of the table of principals.
var rules = map[string]string{
	"executor.register": "act_as_executors", "executor.connect": "act_as_executors",
	"harness.connect": "connect_to_executors", "preview.connect": "connect_to_executors",
	"console.login": "principal", "console.connect": "connect_to_executors",
	"preview.link": "connect_to_executors", "preview.redeem": "connect_to_executors", "preview.revoke": "principal of the link",
}

// denied records a refused request about an executor, if a rule denied it: not one that
// failed.
func (a *Auditor) denied(r *http.Request, executor string, refusal *Refusal, err error) {
	if a == nil || !isDenial(refusal) {
		return
	}
	record := &audit.Record{Action: "call", Caller: a.Caller(r), Executor: executor, Method: cmp.Or(r.Pattern, r.Method), Rule: refusal.Code}
	record.Principal, record.API = refusal.principal, apiRelay
	if failed, ok := errors.AsType[*auth.Error](err); ok {
		record.Action, record.Rule = "authenticate", failed.Kind.String()
	} else if refusal.Code == CodeUnauthorized {
		record.Action = "authenticate"
	}
	setRefusal(record, refusal)
	host := record.Peer[:max(strings.LastIndexByte(record.Peer, ':'), 0)] // without the port
	a.Log.Deny(record, cmp.Or(record.Principal, host))
}

func isDenial(refusal *Refusal) bool {
	switch refusal.Code {
	case codeForbidden, CodeUnauthorized, CodeOriginRefused, codeHostUnknown, codeTooManyAttempts, CodeConnectionLimit:
		return true
	}
	return false
}

// setRefusal sets the result of a refused request.
func setRefusal(r *audit.Record, refusal *Refusal) {
	r.Status, r.Reason = strconv.Itoa(refusal.Status), strings.ToUpper(refusal.Code)
}
