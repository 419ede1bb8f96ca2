package filehttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// refused is the refusal of a request by this package.
type refused struct {
	status int
	text   string
}

func refusal(status int, text string) error { return &refused{status, text} }

func (e *refused) Error() string { return e.text }

// statuses are the HTTP statuses of reasons; statusesOfCodes those of all others.
var statuses = map[execwirev1.ErrorReason]int{
	execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY:     http.StatusNotFound,
	execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED: http.StatusPreconditionFailed,
	execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS: http.StatusPreconditionFailed, // If-None-Match
	execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH:     http.StatusBadRequest,
	execwirev1.ErrorReason_ERROR_REASON_NO_SPACE:            http.StatusInsufficientStorage,
	execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT:        http.StatusServiceUnavailable,
}

var statusesOfCodes = map[codes.Code]int{
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.FailedPrecondition: http.StatusConflict,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusConflict,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
}

// errorBody is the body of the response to a request that failed.
type errorBody struct {
	Reason  string `json:"reason,omitempty"` // of ErrorReason, without its prefix
	Message string `json:"message"`
}

// answer sends an error as the response.
func (q *request) answer(err error) {
	body := errorBody{Message: err.Error()}
	code := http.StatusInternalServerError
	h := q.w.Header()
	if own, ok := err.(*refused); ok {
		code = own.status
	} else {
		body.Message = status.Convert(err).Message()
		info := errorinfo.Of(err)
		body.Reason = info.GetReason()
		if mapped, ok := statusesOfCodes[status.Code(err)]; ok {
			code = mapped
		}
		if mapped, ok := statuses[errorinfo.Reason(err)]; ok {
			code = mapped
		}
		switch errorinfo.Reason(err) {
		case execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY:
			body.Message += " (list it with ReadDirectory of FileSystemService)"
		case execwirev1.ErrorReason_ERROR_REASON_UPLOAD_OFFSET_INVALID:
			h.Set(uploadOffset, info.GetMetadata()["received_bytes"])
		}
		if retry, ok := rpcerror.Detail[*errdetails.RetryInfo](err); ok {
			seconds := (retry.GetRetryDelay().AsDuration() + time.Second - 1) / time.Second
			h.Set("Retry-After", strconv.FormatInt(int64(max(seconds, 1)), 10))
		}
	}
	if code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	for _, name := range []string{"ETag", "Last-Modified", "Content-Disposition", "Content-Length"} {
		h.Del(name)
	}
	text, _ := json.Marshal(body) // strings only
	h.Set("Content-Type", "application/json")
	q.w.WriteHeader(code)
	_, _ = q.w.Write(append(text, '\n')) // the client is gone
}
