// Package errorinfo finds the reason of an error of execwire in its gRPC status.
package errorinfo

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Domain is the domain of every reason.
const Domain = "execwire.v1"

// prefix is that of the names of the enum, which an ErrorInfo omits.
const prefix = "ERROR_REASON_"

// Name returns a reason as an ErrorInfo has it.
func Name(reason execwirev1.ErrorReason) string { return strings.TrimPrefix(reason.String(), prefix) }

// Parse returns the reason that an ErrorInfo has; unspecified if it is not known.
func Parse(name string) execwirev1.ErrorReason {
	return execwirev1.ErrorReason(execwirev1.ErrorReason_value[prefix+name])
}

// Reason returns the reason of an error; unspecified if it has none, or one that is not known.
func Reason(err error) execwirev1.ErrorReason { return Parse(Of(err).GetReason()) }

// Of returns the reason of an error, with its metadata. nil: it has none.
func Of(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info
		}
	}
	return nil
}
