package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/session"
)

// sessionService implements execwire.v1.SessionService; the proto documents its
// methods.
type sessionService struct {
	execwirev1.UnsafeSessionServiceServer
	server *Server
}

var _ execwirev1.SessionServiceServer = (*sessionService)(nil)

// ListSessions implements the RPC.
func (s *sessionService) ListSessions(ctx context.Context, req *execwirev1.ListSessionsRequest) (*execwirev1.ListSessionsResponse, error) {
	list, more := s.server.cfg.Sessions.Sessions(caller(ctx), req.GetPageToken(), pageSize(req.GetPageSize()))
	sessions, next := page(list, more, toSession, func(info session.Info) string { return info.ID })
	return &execwirev1.ListSessionsResponse{Sessions: sessions, NextPageToken: next}, nil
}

// CloseSession implements the RPC.
func (s *sessionService) CloseSession(ctx context.Context, req *execwirev1.CloseSessionRequest) (*execwirev1.CloseSessionResponse, error) {
	// open does not find a session that is being closed.
	return &execwirev1.CloseSessionResponse{}, s.server.cfg.Sessions.CloseSession(ctx, caller(ctx), req.GetSessionId())
}

// GrantSession implements the RPC.
func (s *sessionService) GrantSession(ctx context.Context, req *execwirev1.GrantSessionRequest) (*execwirev1.GrantSessionResponse, error) {
	info, err := s.server.cfg.Sessions.Grant(caller(ctx), req.GetSessionId(), req.GetPrincipal(), sessionAccesses[req.GetAccess()])
	if err != nil {
		return nil, err
	}
	return &execwirev1.GrantSessionResponse{Session: toSession(info)}, nil
}

// toSession translates the description of a session.
func toSession(info session.Info) *execwirev1.Session {
	m := &execwirev1.Session{
		SessionId:    info.ID,
		Attached:     info.Attached,
		CreateTime:   timestamppb.New(info.Created),
		ExpireTime:   toTime(info.Expires),
		ProcessCount: uint32(info.Processes),
		Principal:    info.Principal,
		Grace:        durationpb.New(info.Grace),
		WhenDetached: keyOf(whenDetached, info.WhenDetached),
	}
	for name, access := range info.Grants {
		if m.Grants == nil {
			m.Grants = make(map[string]execwirev1.SessionAccess, len(info.Grants))
		}
		m.Grants[name] = keyOf(sessionAccesses, access)
	}
	return m
}

// sessionAccesses translates the access of grants; a test proves it complete.
var sessionAccesses = map[execwirev1.SessionAccess]session.Access{
	execwirev1.SessionAccess_SESSION_ACCESS_UNSPECIFIED: session.AccessNone,
	execwirev1.SessionAccess_SESSION_ACCESS_VIEW:        session.AccessView,
	execwirev1.SessionAccess_SESSION_ACCESS_WRITE:       session.AccessWrite,
}

// whenDetached translates policies; a test proves it complete.
var whenDetached = map[execwirev1.WhenDetached]session.WhenDetached{
	execwirev1.WhenDetached_WHEN_DETACHED_UNSPECIFIED:    session.WhenDetachedUnchanged,
	execwirev1.WhenDetached_WHEN_DETACHED_BLOCK:          session.WhenDetachedBlock,
	execwirev1.WhenDetached_WHEN_DETACHED_DISCARD_OLDEST: session.WhenDetachedDiscardOldest,
}

// keyOf is the reverse of a lookup.
func keyOf[K, V comparable](table map[K]V, value V) (key K) {
	for k, v := range table {
		if v == value {
			return k
		}
	}
	return key
}

// UnknownMethod answers calls of unknown methods and services, which newer clients
// make. It is a handler for grpc.UnknownServiceHandler.
func UnknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return notImplemented(method)
}
