package server

import (
	"context"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// sessionService implements execwire.v1.SessionService, which has no engine
// yet, by saying so.
type sessionService struct {
	execwirev1.UnsafeSessionServiceServer
}

var _ execwirev1.SessionServiceServer = (*sessionService)(nil)

// AttachSession implements the RPC.
func (*sessionService) AttachSession(grpc.BidiStreamingServer[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]) error {
	return notImplemented("SessionService.AttachSession")
}

// ListSessions implements the RPC.
func (*sessionService) ListSessions(context.Context, *execwirev1.ListSessionsRequest) (*execwirev1.ListSessionsResponse, error) {
	return nil, notImplemented("SessionService.ListSessions")
}

// CloseSession implements the RPC.
func (*sessionService) CloseSession(context.Context, *execwirev1.CloseSessionRequest) (*execwirev1.CloseSessionResponse, error) {
	return nil, notImplemented("SessionService.CloseSession")
}

// GrantSession implements the RPC.
func (*sessionService) GrantSession(context.Context, *execwirev1.GrantSessionRequest) (*execwirev1.GrantSessionResponse, error) {
	return nil, notImplemented("SessionService.GrantSession")
}

// UnknownMethod answers calls to methods and services that this server does not
// know, which only a newer client makes. It is a handler for
// grpc.UnknownServiceHandler.
func UnknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return notImplemented(method)
}
