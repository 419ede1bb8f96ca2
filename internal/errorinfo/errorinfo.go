// Package errorinfo finds the reason of an error of execwire in its gRPC status.
package errorinfo

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// Domain is the domain of every reason.
const Domain = "execwire.v1"

// Of returns the reason of an error, with its metadata. nil: it has none.
func Of(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info
		}
	}
	return nil
}
