package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/session"
)

// sessionAccess says what access to a session each RPC needs; a test proves it
// complete. WatchProcess needs more when it is lossless, because it then paces
// the process. ListSessions lists what can be seen. What package session does
// with a session itself it allows the owner only, of its own accord.
var sessionAccess = map[string]session.Access{
	execwirev1.ProcessService_StartProcess_FullMethodName:     session.AccessOwner,
	execwirev1.ProcessService_RunProcess_FullMethodName:       session.AccessOwner,
	execwirev1.ProcessService_WatchProcess_FullMethodName:     session.AccessView,
	execwirev1.ProcessService_ReadOutput_FullMethodName:       session.AccessView,
	execwirev1.ProcessService_SnapshotOutput_FullMethodName:   session.AccessView,
	execwirev1.ProcessService_WaitProcess_FullMethodName:      session.AccessView,
	execwirev1.ProcessService_GetProcess_FullMethodName:       session.AccessView,
	execwirev1.ProcessService_ListProcesses_FullMethodName:    session.AccessView,
	execwirev1.ProcessService_WriteStdin_FullMethodName:       session.AccessWrite,
	execwirev1.ProcessService_CloseStdin_FullMethodName:       session.AccessWrite,
	execwirev1.ProcessService_ResizeTerminal_FullMethodName:   session.AccessWrite,
	execwirev1.ProcessService_SignalProcess_FullMethodName:    session.AccessWrite,
	execwirev1.ProcessService_TerminateProcess_FullMethodName: session.AccessWrite,

	execwirev1.SessionService_AttachSession_FullMethodName: session.AccessOwner,
	execwirev1.SessionService_ListSessions_FullMethodName:  session.AccessView,
	execwirev1.SessionService_CloseSession_FullMethodName:  session.AccessOwner,
	execwirev1.SessionService_GrantSession_FullMethodName:  session.AccessOwner,
}

// accessFor is what the RPC of a call needs. An unknown one needs everything.
func accessFor(ctx context.Context) session.Access {
	method, _ := grpc.Method(ctx)
	if access, ok := sessionAccess[method]; ok {
		return access
	}
	return session.AccessOwner
}

// open finds the session if the caller may access it as the RPC needs.
func (s *Server) open(ctx context.Context, sessionID string) (*session.Session, error) {
	return s.openFor(ctx, sessionID, accessFor(ctx))
}

func (s *Server) openFor(ctx context.Context, sessionID string, access session.Access) (*session.Session, error) {
	principal, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.Sessions.OpenFor(principal, sessionID, access)
}

// find finds a process if the caller may access it as the RPC needs.
func (s *Server) find(ctx context.Context, sessionID, processID string) (*session.Process, error) {
	return s.findFor(ctx, sessionID, processID, accessFor(ctx))
}

func (s *Server) findFor(ctx context.Context, sessionID, processID string, access session.Access) (*session.Process, error) {
	sess, err := s.openFor(ctx, sessionID, access)
	if err != nil {
		return nil, err
	}
	return sess.Process(processID)
}

// seen notes that the answer of a call carries the exit of a process. An answer
// whose caller is gone carries nothing.
func seen(ctx context.Context, p *session.Process) {
	if ctx.Err() != nil {
		return
	}
	if principal, err := caller(ctx); err == nil {
		p.Seen(principal)
	}
}

// caller is the name of the principal that makes a call.
func caller(ctx context.Context) (string, error) {
	principal, err := auth.FromContext(ctx)
	if err != nil {
		return "", failure(codes.Unauthenticated, execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, nil, err.Error())
	}
	return principal.Name, nil
}
