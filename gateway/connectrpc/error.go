package connectrpc

import (
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// toConnect returns a status of the server as the same error of Connect, with its
// details. Errors of package connect are returned unchanged.
func toConnect(err error) error {
	if err == nil {
		return nil
	}
	if own, ok := err.(*connect.Error); ok {
		return own
	}
	st := status.Convert(err)
	converted := connect.NewError(connect.Code(st.Code()), st.Message())
	for _, detail := range st.Proto().GetDetails() {
		if packed, err := connectproto.NewErrorDetail(detail); err == nil { // which cannot fail for an Any
			converted = converted.WithDetail(packed)
		}
	}
	return converted
}

// errBidi returns the error for a method that streams in both directions.
func errBidi(method string) error {
	st, err := status.New(codes.Unimplemented, strings.TrimPrefix(method, "/")+
		" streams in both directions at once, which HTTP/1.1 does not: call it by gRPC on this port, or use methods that stream in one direction").
		WithDetails(&errdetails.ErrorInfo{
			Domain:   errorinfo.Domain,
			Reason:   errorinfo.Name(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED),
			Metadata: map[string]string{"feature": method},
		})
	if err != nil {
		return err
	}
	return toConnect(st.Err())
}
