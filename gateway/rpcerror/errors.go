// Package rpcerror converts errors of the gRPC server into JSON-RPC errors, with the
// codes and the texts of the reference.
package rpcerror

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// codesOf maps reasons to JSON-RPC codes. All others are internal errors, as are errors
// of the operating system in the reference.
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
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_WORKERS:    jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED:    jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED:          jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL:        jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL:           jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_SCREEN_UNAVAILABLE:       jsonrpc.CodeInvalidRequest,
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
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:           jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE:       jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF:         jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_TREE_TOO_DEEP:            jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED:          jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE:           jsonrpc.CodeLimitReached,
	execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED:      jsonrpc.CodeInvalidRequest,
	execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES:    jsonrpc.CodeLimitReached,
}

// Detail returns the first detail of type T in an error of the server.
func Detail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok = d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}

// Of converts an error of the server, with its text. Data has the reason and its
// metadata.
func Of(err error) *jsonrpc.Error {
	code, ok := codesOf[errorinfo.Reason(err)]
	if !ok {
		code = jsonrpc.CodeInternal
	}
	return &jsonrpc.Error{Code: code, Message: status.Convert(err).Message(), Data: dataOf(err)}
}

// WithText is Of with a text that clients of the reference know.
func WithText(err error, text string) *jsonrpc.Error {
	failure := Of(err)
	failure.Message = text
	return failure
}

// dataOf returns the data of an error; nil without a reason. The subject is left out:
// the client has another name for it.
func dataOf(err error) any {
	info := errorinfo.Of(err)
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
		data["field"] = "sandbox" // the client's shape has other fields
	}
	if retry, ok := Detail[*errdetails.RetryInfo](err); ok {
		data[RetryMember] = retry.GetRetryDelay().AsDuration().Milliseconds()
	}
	return data
}

// RetryMember is the member of the data with the milliseconds after which a retry may
// succeed.
const RetryMember = "retryAfterMs"

// RetryWhenFull is the retry delay for the gateway's own limits.
const RetryWhenFull = time.Second

// WithCode is WithText with the reference's code.
func WithCode(err error, code int, text string) *jsonrpc.Error {
	failure := WithText(err, text)
	failure.Code = code
	return failure
}

// ExceedsQuota reports whether the error is a quota failure of limit.
func ExceedsQuota(err error, limit string) bool {
	quota, _ := Detail[*errdetails.QuotaFailure](err)
	return slices.ContainsFunc(quota.GetViolations(), func(v *errdetails.QuotaFailure_Violation) bool { return v.GetSubject() == limit })
}

// isInSandbox reports whether a field of a request to the server belongs to its
// sandbox.
func isInSandbox(field string) bool {
	for _, prefix := range []string{"command.direct.", "head."} {
		field = strings.TrimPrefix(field, prefix)
	}
	return strings.HasPrefix(field, "sandbox.")
}

// incomingTotal is the setting of the limit across connections.
const incomingTotal = "incoming_bytes_total"

// BudgetReached is the error for a message beyond the memory of all connections.
func BudgetReached() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: "the requests of all connections take too much memory together: send it again later, or raise " + incomingTotal,
		Data:    map[string]any{"setting": incomingTotal, RetryMember: RetryWhenFull.Milliseconds()},
	}
}

// MessageTooLarge is the error for a message beyond message_bytes. Retrying does not
// help.
func MessageTooLarge(limit int, what string) *jsonrpc.Error {
	failed := LimitReached("message_bytes", limit, what)
	failed.Data = map[string]any{"reason": "MESSAGE_TOO_LARGE", "setting": "message_bytes", "limit": limit}
	return failed
}

// OwnLimit returns the setting of an error for a limit of the gateway itself, and "" for
// every other error.
func OwnLimit(failed *jsonrpc.Error) string {
	data, _ := failed.Data.(map[string]any)
	if _, ofServer := data["reason"]; ofServer || failed.Code != jsonrpc.CodeLimitReached {
		return ""
	}
	setting, _ := data["setting"].(string)
	return setting
}

// LimitReached is the error for a limit of one connection.
func LimitReached(setting string, limit int, what string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeLimitReached,
		Message: "too many " + what + " on this connection: at most " + strconv.Itoa(limit) + " may be (" + setting + ")",
		Data:    map[string]any{"setting": setting, "limit": limit, RetryMember: RetryWhenFull.Milliseconds()},
	}
}
