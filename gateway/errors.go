package gateway

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// coreErrors is the domain of the reasons that a core gives.
const coreErrors = "execwire.v1"

// codesOf are the codes of the reasons that have one of their own. All others
// are internal errors, as the reference has it for what the operating system
// refuses.
var codesOf = map[execwirev1.ErrorReason]int{
	execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:            jsonrpc.CodeInvalidParams,
	execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED:          jsonrpc.CodeMethodNotFound,
	execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:          jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:         jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_ON_BEHALF_OF_REFUSED:     jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED:             jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:        jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED:         jsonrpc.CodeSessionAttached,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER:       jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED:           jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_ACCESS_DENIED:    jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:        jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:   jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE:      jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SANDBOX_PATH_UNSAFE:      jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SANDBOX_TOO_LARGE:        jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HELPERS:    jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED:    jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED:          jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL:        jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL:           jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE:        jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS: jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS:     jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_SESSIONS:        jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_READERS:         jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES:       jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_RETAINED_OUTPUT_FULL:     jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_WRITE_TOO_LARGE:          jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_STDIN_QUEUE_FULL:         jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED:            jsonrpc.CodeMethodNotFound,
	execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED:     jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE:      jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_HTTP_REQUESTS:   jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES:         jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_WATCH_UNAVAILABLE:        jsonrpc.CodeLimitReached,
}

// coreInfo is what the core says about an error of its own, or nil.
func coreInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == coreErrors {
			return info
		}
	}
	return nil
}

// reasonOf is the reason of an error of the core; unspecified for any other.
func reasonOf(err error) execwirev1.ErrorReason {
	return execwirev1.ErrorReason(execwirev1.ErrorReason_value["ERROR_REASON_"+coreInfo(err).GetReason()])
}

// failureOf is what the client is told of a call that failed, with the core's
// text. Data has the reason and what the core said with it.
func failureOf(err error) *jsonrpc.Error {
	code, ok := codesOf[reasonOf(err)]
	if !ok {
		code = jsonrpc.CodeInternal
	}
	return &jsonrpc.Error{Code: code, Message: status.Convert(err).Message(), Data: dataOf(err)}
}

// failureWith is failureOf with a text that clients know.
func failureWith(err error, text string) *jsonrpc.Error {
	failure := failureOf(err)
	failure.Message = text
	return failure
}

// dataOf is the data of an error, nil if the core gave no reason. What it is
// about the client knows by a name of its own.
func dataOf(err error) any {
	info := coreInfo(err)
	if info == nil {
		return nil
	}
	data := make(map[string]any, len(info.GetMetadata())+2)
	for name, value := range info.GetMetadata() {
		data[name] = value
	}
	delete(data, "subject")
	data["reason"] = info.GetReason()
	if field, ok := data["field"].(string); ok && isInSandbox(field) {
		data["field"] = "sandbox" // whose shape was another
	}
	if after, ok := retryAfter(err); ok {
		data[retryMember] = after.Milliseconds()
	}
	return coreData{members: data, failed: err}
}

// retryMember is the member of the data of an error that says after how many
// milliseconds the same request may succeed.
const retryMember = "retryAfterMs"

// retryWhenFull is when to retry what the gateway refuses because of what it has
// already.
const retryWhenFull = time.Second

// retryAfter is when the core says to retry.
func retryAfter(err error) (after time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

// coreData is the data of an error of the core. It is written as its members, which
// are the reason, what the core said with it, and when to retry.
type coreData struct {
	members map[string]any
	failed  error
}

// MarshalJSON implements json.Marshaler.
func (d coreData) MarshalJSON() ([]byte, error) { return json.Marshal(d.members) }

// inFull is the error with the status as the core has it, for a client that asks in
// the words of the core.
func (c *connection) inFull(failed *jsonrpc.Error) *jsonrpc.Error {
	data, ok := failed.Data.(coreData)
	if !ok || !c.asksCore {
		return failed
	}
	members := maps.Clone(data.members)
	members["status"] = coreMessage{status.Convert(data.failed).Proto()}
	full := *failed
	full.Data = members
	return &full
}

// processFailure is failureOf for calls that name a process by a client's id.
func processFailure(id string, err error) *jsonrpc.Error {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return failureWith(err, "unknown process id "+id)
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		return failureWith(err, "process "+id+" already exists")
	}
	return failureOf(err)
}

// sessionFailure is failureOf for attaching a session.
func sessionFailure(id string, err error) *jsonrpc.Error {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return failureWith(err, "unknown session id "+id)
	case execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
		if coreInfo(err).GetMetadata()["field"] == "session_id" { // one that cannot be attached
			return failureWithCode(err, jsonrpc.CodeInvalidRequest, "unknown session id "+id)
		}
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED:
		return failureWith(err, "session "+id+" is already attached to another connection")
	}
	return failureOf(err)
}

// unknownProcess is for ids that no process can have.
func unknownProcess(id string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest, Message: "unknown process id " + shorten(id),
		Data: map[string]string{"reason": "PROCESS_NOT_FOUND"},
	}
}

// unknownSession is for ids that no session can have.
func unknownSession(id string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest, Message: "unknown session id " + shorten(id),
		Data: map[string]string{"reason": "SESSION_NOT_FOUND"},
	}
}

// endingFor is how a connection ends whose attachment failed. When the core
// cannot be reached, the client is told to come back: it then resumes its
// session over another connection.
func endingFor(err error) ending {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER:
		return ending{closePolicy, "another connection took the session over", err}
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return ending{closePolicy, "the session was ended", err}
	case execwirev1.ErrorReason_ERROR_REASON_DRAINING:
		return ending{closeGoingAway, "the server stops", nil}
	}
	if code := status.Code(err); code == codes.Unavailable && !errors.Is(err, errAttachTime) {
		return ending{closeTryAgain, "the core cannot be reached", err}
	}
	return ending{closeInternal, "the session failed", err}
}

// failureWithCode is failureWith where clients know the failure by another code.
func failureWithCode(err error, code int, text string) *jsonrpc.Error {
	failure := failureWith(err, text)
	failure.Code = code
	return failure
}

// tooManyProcesses is the refusal of a start because of the bound that the
// gateway gave the core for the session; nil for all other errors.
func tooManyProcesses(err error) *jsonrpc.Error {
	if reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES || !exceeds(err, "max_processes") {
		return nil
	}
	const setting = "max_processes_per_connection"
	limit := coreInfo(err).GetMetadata()["limit"]
	failure := failureWith(err, "too many processes of this connection run: at most "+limit+" may ("+setting+")")
	failure.Data = map[string]any{"reason": coreInfo(err).GetReason(), "setting": setting, "limit": limit,
		retryMember: retryWhenFull.Milliseconds()}
	return failure
}

// exceeds reports whether the core refused something because of a limit.
func exceeds(err error, limit string) bool {
	for _, detail := range status.Convert(err).Details() {
		if quota, ok := detail.(*errdetails.QuotaFailure); ok {
			return slices.ContainsFunc(quota.GetViolations(), func(v *errdetails.QuotaFailure_Violation) bool { return v.GetSubject() == limit })
		}
	}
	return false
}
