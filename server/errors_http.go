package server

import (
	"errors"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/protoadapt"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/httpclient"
)

// httpErrors translates the kinds of package httpclient; a test proves it
// complete.
var httpErrors = map[httpclient.Kind]translation{
	httpclient.InvalidRequest:  {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	httpclient.AddressRefused:  {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED},
	httpclient.Failed:          {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED},
	httpclient.TimedOut:        {codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT},
	httpclient.HeadTooLarge:    {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE},
	httpclient.BodyFailed:      {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED},
	httpclient.TooManyRequests: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_HTTP_REQUESTS},
}

func fromHTTP(err *httpclient.Error) error {
	t, ok := httpErrors[err.Kind]
	if !ok {
		t = translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
	}
	if err.Kind == httpclient.InvalidRequest {
		return invalidField(err.Field, valid(err.Cause()))
	}
	metadata := map[string]string{}
	for key, value := range map[string]string{"url": err.URL, "cause": err.Cause()} {
		if value != "" {
			metadata[key] = valid(value)
		}
	}
	if errno, ok := errors.AsType[syscall.Errno](err.Err); ok {
		metadata["errno"] = unix.ErrnoName(errno)
	}
	var details []protoadapt.MessageV1
	if err.Kind == httpclient.AddressRefused {
		metadata["address"] = err.Address.String()
	}
	if q, ok := httpQuotas[err.Kind]; ok {
		details = q.describe(int64(err.Limit), metadata)
	}
	return failure(t.code, t.reason, metadata, valid(err.Error()), details...)
}

// valid is text that a message can carry.
func valid(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }
