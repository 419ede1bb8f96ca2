package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/session"
)

// accessFor returns the access to a session that the RPC of a call needs. It follows
// from the permission that the RPC needs.
func accessFor(ctx context.Context) session.Access {
	method, _ := grpc.Method(ctx)
	return accessOf(method)
}

func accessOf(method string) session.Access {
	switch needs[method].permission {
	case auth.View:
		return session.AccessView
	case auth.Control:
		return session.AccessWrite
	}
	return session.AccessOwner
}

// open returns the session if the caller has the access that the RPC needs.
func (s *Server) open(ctx context.Context, sessionID string) (*session.Session, error) {
	return s.cfg.Sessions.Open(caller(ctx), sessionID, accessFor(ctx))
}

// find returns a process if the caller has the access that the RPC needs.
func (s *Server) find(ctx context.Context, sessionID, processID string) (*session.Process, error) {
	sess, err := s.open(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return sess.Process(processID)
}

// markSeen records that the answer of a call contains the exit record of a process,
// unless the caller is gone.
func markSeen(ctx context.Context, p *session.Process) {
	if ctx.Err() == nil {
		p.Seen(caller(ctx))
	}
}

// caller returns the name of the principal that makes a call. The interceptors have put
// it into the context; without them no call may be served.
func caller(ctx context.Context) string {
	principal, err := auth.FromContext(ctx)
	if err != nil {
		panic(err)
	}
	return principal.Name
}
