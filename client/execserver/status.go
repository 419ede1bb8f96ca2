package execserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// failure returns a status with a reason.
func failure(reason execwirev1.ErrorReason, format string, args ...any) error {
	return newStatus(reason, fmt.Sprintf(format, args...), nil)
}

// reasonCodes are the codes of reasons other than FAILED_PRECONDITION.
var reasonCodes = map[execwirev1.ErrorReason]codes.Code{
	execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:          codes.InvalidArgument,
	execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED:        codes.Unimplemented,
	execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:        codes.Unauthenticated,
	execwirev1.ErrorReason_ERROR_REASON_DRAINING:               codes.Unavailable,
	execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED:    codes.Unavailable,
	execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED:      codes.Unavailable,
	execwirev1.ErrorReason_ERROR_REASON_AUDIT_LOG_FAILED:       codes.Unavailable,
	execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:       codes.PermissionDenied,
	execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:      codes.NotFound,
	execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:      codes.NotFound,
	execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS: codes.AlreadyExists,
	execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER:     codes.Aborted,
	execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED:        codes.OutOfRange,
	execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID:   codes.OutOfRange,
	execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:      codes.NotFound,
	execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG: codes.InvalidArgument,
	execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT:           codes.ResourceExhausted,
	execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:      codes.PermissionDenied,
	execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND:         codes.NotFound,
	execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS:    codes.AlreadyExists,
	execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE:         codes.ResourceExhausted,
	execwirev1.ErrorReason_ERROR_REASON_NO_SPACE:               codes.ResourceExhausted,
	execwirev1.ErrorReason_ERROR_REASON_COPY_INTO_ITSELF:       codes.InvalidArgument,
	execwirev1.ErrorReason_ERROR_REASON_FILE_CHANGED:           codes.Aborted,
}

// newStatus returns a status with a reason and its metadata.
func newStatus(reason execwirev1.ErrorReason, message string, metadata map[string]string, details ...protoadapt.MessageV1) error {
	code, ok := reasonCodes[reason]
	if !ok {
		code = codes.FailedPrecondition
	}
	info := &errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: errorinfo.Name(reason), Metadata: metadata}
	st, err := status.New(code, message).WithDetails(append(details, info)...)
	if err != nil {
		return status.Error(code, message)
	}
	return st.Err()
}

// fieldError is the error for a field of a request that cannot be sent.
type fieldError struct{ field, problem string }

func invalidField(field, problem string) error { return &fieldError{field, problem} }

func (e *fieldError) Error() string { return e.field + " " + e.problem }

// GRPCStatus returns the status with the field.
func (e *fieldError) GRPCStatus() *status.Status {
	violation := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: e.field, Description: e.Error()}}}
	return status.Convert(newStatus(execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, e.Error(), map[string]string{"field": e.field}, violation))
}

// within returns err about a message that is a field of the request.
func within(field string, err error) error {
	if e, ok := errors.AsType[*fieldError](err); ok {
		return &fieldError{field + "." + e.field, e.problem}
	}
	return err
}

// statusOf returns the status of a server's error: by the reason in its data, which
// servers of execwire send, otherwise by its code and text.
func statusOf(method string, answered *jsonrpc.Error) error {
	var data map[string]any
	if raw, ok := answered.Data.(json.RawMessage); !ok || json.Unmarshal(raw, &data) != nil {
		return statusFromText(method, answered)
	}
	name, _ := data["reason"].(string)
	reason := errorinfo.Parse(name)
	if reason == execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return statusFromText(method, answered)
	}
	var details []protoadapt.MessageV1
	if ms, ok := data["retryAfterMs"].(float64); ok {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(ms) * time.Millisecond)})
	}
	metadata := make(map[string]string, len(data))
	for name, value := range data {
		if text, ok := value.(string); ok && name != "reason" {
			metadata[name] = text
		}
	}
	return newStatus(reason, answered.Message, metadata, details...)
}
