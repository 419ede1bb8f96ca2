package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/session"
)

// sessionService implements execwire.v1.SessionService; what its methods
// promise is written in the proto.
type sessionService struct {
	execwirev1.UnsafeSessionServiceServer
	server *Server
}

var _ execwirev1.SessionServiceServer = (*sessionService)(nil)

// ListSessions implements the RPC. The token of a page is the id of the last
// session on the one before, so pages stay right while sessions come and go.
func (s *sessionService) ListSessions(ctx context.Context, req *execwirev1.ListSessionsRequest) (*execwirev1.ListSessionsResponse, error) {
	principal, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	list, more := s.server.cfg.Sessions.Sessions(principal, req.GetPageToken(), pageSize(req.GetPageSize()))
	resp := &execwirev1.ListSessionsResponse{}
	size := 0
	for i, info := range list {
		m := toSession(info)
		resp.Sessions = append(resp.Sessions, m)
		size += proto.Size(m) // grants can be long
		if last := i+1 == len(list); last && more || !last && size > maxPageBytes {
			resp.NextPageToken = info.ID
			break
		}
	}
	return resp, nil
}

// CloseSession implements the RPC.
func (s *sessionService) CloseSession(ctx context.Context, req *execwirev1.CloseSessionRequest) (*execwirev1.CloseSessionResponse, error) {
	principal, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	// Not by way of open, for which a session that is being closed is gone.
	if err := s.server.cfg.Sessions.CloseSession(ctx, principal, req.GetSessionId()); err != nil {
		return nil, err
	}
	return &execwirev1.CloseSessionResponse{}, nil
}

// GrantSession implements the RPC.
func (s *sessionService) GrantSession(ctx context.Context, req *execwirev1.GrantSessionRequest) (*execwirev1.GrantSessionResponse, error) {
	// Whoever was granted the session is told that this is not enough.
	if _, err := s.server.open(ctx, req.GetSessionId()); err != nil {
		return nil, err
	}
	principal, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	info, err := s.server.cfg.Sessions.Grant(principal, req.GetSessionId(), req.GetPrincipal(), toAccess(req.GetAccess()))
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
		ExpireTime:   optionalTime(info.Expires),
		ProcessCount: uint32(info.Processes),
		Principal:    info.Principal,
		Grace:        durationpb.New(info.Grace),
		WhenDetached: fromWhenDetached(info.WhenDetached),
	}
	for name, access := range info.Grants {
		if m.Grants == nil {
			m.Grants = make(map[string]execwirev1.SessionAccess, len(info.Grants))
		}
		m.Grants[name] = fromAccess(access)
	}
	return m
}

func optionalTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func toAccess(m execwirev1.SessionAccess) session.Access {
	switch m {
	case execwirev1.SessionAccess_SESSION_ACCESS_VIEW:
		return session.AccessView
	case execwirev1.SessionAccess_SESSION_ACCESS_WRITE:
		return session.AccessWrite
	default:
		return session.AccessNone
	}
}

func fromAccess(a session.Access) execwirev1.SessionAccess {
	switch a {
	case session.AccessView:
		return execwirev1.SessionAccess_SESSION_ACCESS_VIEW
	case session.AccessWrite, session.AccessOwner:
		return execwirev1.SessionAccess_SESSION_ACCESS_WRITE
	default:
		return execwirev1.SessionAccess_SESSION_ACCESS_UNSPECIFIED
	}
}

// whenDetached pairs the policies of the contract with those of the domain.
var whenDetached = map[execwirev1.WhenDetached]session.WhenDetached{
	execwirev1.WhenDetached_WHEN_DETACHED_UNSPECIFIED:    session.WhenDetachedUnchanged,
	execwirev1.WhenDetached_WHEN_DETACHED_BLOCK:          session.WhenDetachedBlock,
	execwirev1.WhenDetached_WHEN_DETACHED_DISCARD_OLDEST: session.WhenDetachedDiscardOldest,
	execwirev1.WhenDetached_WHEN_DETACHED_SPOOL:          session.WhenDetachedSpool,
}

func fromWhenDetached(w session.WhenDetached) execwirev1.WhenDetached {
	for m, policy := range whenDetached {
		if policy == w {
			return m
		}
	}
	return execwirev1.WhenDetached_WHEN_DETACHED_UNSPECIFIED
}

// UnknownMethod answers calls to methods and services that this server does not
// know, which only a newer client makes. It is a handler for
// grpc.UnknownServiceHandler.
func UnknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return notImplemented(method)
}
