package server

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	authmw "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/server/auditcall"
	"github.com/execwire/execwire/server/traffic"
)

// The order of the interceptors matters. Traces and the log record what the client
// receives, so they are outermost, and log lines have the span of the call; errors are translated just
// inside it; a panic becomes an error before the translation; no request is read
// before its caller is authenticated and authorized. The audit log records what is done,
// so it is innermost.

// UnaryInterceptors returns the interceptors of unary calls, outermost first.
func (s *Server) UnaryInterceptors() []grpc.UnaryServerInterceptor {
	list := append(s.cfg.Tracer.UnaryInterceptors(),
		s.logUnary,
		s.translateUnary,
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		authmw.UnaryServerInterceptor(s.authorize),
		s.checkUnary,
	)
	if s.cfg.Audit != nil {
		list = append(list, s.auditUnary)
	}
	return list
}

// StreamInterceptors returns the interceptors of streams, outermost first.
func (s *Server) StreamInterceptors() []grpc.StreamServerInterceptor {
	list := append(s.cfg.Tracer.StreamInterceptors(),
		s.logStream,
		s.translateStream,
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		authmw.StreamServerInterceptor(s.authorize),
		s.checkStream,
	)
	if s.cfg.Audit != nil {
		list = append(list, s.auditStream)
	}
	return list
}

// maxNameBytes bounds the method names in the log, which unauthenticated callers
// choose.
const maxNameBytes = 100

// normalEnds are reasons with which attachments end without a fault: the session was
// closed, or the server stops and the client resumes.
var normalEnds = []string{
	reasonName(execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED), reasonName(execwirev1.ErrorReason_ERROR_REASON_DRAINING),
}

// callLog has what the log says about the caller of a call, once it is authenticated.
type callLog struct {
	begun   time.Time
	caller  auth.Caller
	refusal error
}

// callLogKey is the context key of the callLog.
type callLogKey struct{}

func (s *Server) logUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	log := &callLog{begun: time.Now()}
	resp, err := handler(context.WithValue(ctx, callLogKey{}, log), req)
	s.logCall(ctx, info.FullMethod, log, err)
	return resp, err
}

func (s *Server) logStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	log := &callLog{begun: time.Now()}
	wrapped := middleware.WrapServerStream(stream)
	wrapped.WrappedContext = context.WithValue(stream.Context(), callLogKey{}, log)
	err := handler(srv, wrapped)
	s.logCall(stream.Context(), info.FullMethod, log, err)
	return err
}

// logCall writes one line about a call that has ended. It has the reason of an error but not
// its message, which can contain commands and paths of a caller. The line is composed only
// if it is written: the logging interceptor of go-grpc-middleware composes it before, which
// takes 10 us of each call.
func (s *Server) logCall(ctx context.Context, fullMethod string, log *callLog, err error) {
	code, reason := status.Code(err), errorinfo.Of(err).GetReason()
	level := callLevel(code)
	if fullMethod == execwirev1.SessionService_AttachSession_FullMethodName && slices.Contains(normalEnds, reason) {
		level = slog.LevelDebug
	}
	if !s.cfg.Logger.Enabled(ctx, level) {
		return
	}
	service, method := path.Split(strings.TrimPrefix(fullMethod, "/"))
	fields := []any{
		"grpc.service", truncate(strings.TrimSuffix(service, "/"), maxNameBytes), "grpc.method", truncate(method, maxNameBytes),
		"grpc.start_time", log.begun.Format(time.RFC3339), "grpc.code", code.String(),
		"grpc.time_ms", float64(time.Since(log.begun).Microseconds()) / 1000,
	}
	if from, ok := peer.FromContext(ctx); ok {
		fields = append(fields, "peer.address", from.Addr.String())
	}
	if deadline, ok := ctx.Deadline(); ok {
		fields = append(fields, "grpc.request.deadline", deadline.Format(time.RFC3339))
	}
	if err != nil {
		fields = append(fields, "reason", reason)
	}
	fields = append(append(fields, log.callerFields()...), traceFields(ctx)...)
	s.cfg.Logger.Log(ctx, level, "finished call", fields...)
}

// callerFields returns what the log says about the caller. It has no credentials, and
// neither do the errors of package auth.
func (l *callLog) callerFields() (fields []any) {
	if !l.caller.Principal.IsZero() {
		fields = append(fields, "principal", l.caller.Principal.Name)
	}
	if !l.caller.Via.IsZero() {
		fields = append(fields, "via", l.caller.Via.Name)
	}
	if l.refusal != nil {
		fields = append(fields, "refusal", l.refusal.Error())
	}
	return fields
}

// traceFields returns the log fields that relate a line to the trace of a call. A call
// with two trace parents has none.
func traceFields(ctx context.Context) []any {
	trace := tracecontext.FromIncoming(ctx)
	if trace.IsZero() {
		return nil
	}
	return []any{"trace_id", trace.TraceID(), "span_id", trace.SpanID()}
}

// callLevel returns the log level of a call: faults of the server are errors, faults
// of the client are not.
func callLevel(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Canceled:
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func (s *Server) translateUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, s.toStatus(ctx, err)
}

func (s *Server) translateStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.toStatus(stream.Context(), handler(srv, stream))
}

// recovered turns a panic of a handler into an error of its call. The server
// continues.
func (s *Server) recovered(ctx context.Context, panicked any) error {
	s.cfg.Logger.With(traceFields(ctx)...).Error("a handler panicked", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	return newStatus(codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, "the server failed; its log says more")
}

func (s *Server) checkUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.check(ctx, req); err != nil {
		return nil, err
	}
	traffic := s.cfg.Traffic(ctx)
	traffic.Received(req)
	resp, err := handler(ctx, req)
	if err == nil {
		traffic.Sent(resp)
	}
	return resp, err
}

func (s *Server) checkStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &checkedStream{ServerStream: stream, server: s, traffic: s.cfg.Traffic(stream.Context())})
}

// checkedStream checks every message of a client before the handler receives it, and
// counts what messages carry.
type checkedStream struct {
	grpc.ServerStream
	server  *Server
	traffic *traffic.Bytes
}

// SendMsg implements grpc.ServerStream.
func (c *checkedStream) SendMsg(m any) error {
	c.traffic.Sent(m)
	return c.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (c *checkedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	c.traffic.Received(m)
	return c.server.check(c.Context(), m)
}

// check authorizes what a message itself asks for, and checks its size and its fields.
// gRPC itself only rejects messages of twice the size, because it cannot explain why.
func (s *Server) check(ctx context.Context, req any) error {
	if err := authorizeRequest(ctx, req); err != nil {
		method, _ := grpc.Method(ctx)
		s.cfg.Audit.Denied(ctx, whoOf(ctx, needOf(req)), method, req, err, "permission "+needOf(req).String())
		return err
	}
	message, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	if limit := int(s.limits().GetMessageBytes()); proto.Size(message) > limit {
		return translation{codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE}.failure(
			"the message is larger than "+strconv.Itoa(limit)+" bytes: split it").limit(messageQuota, int64(limit)).status()
	}
	return validateFields(message)
}

func (s *Server) auditUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	who := whoOf(ctx, needs[info.FullMethod].permission|needOf(req))
	return s.cfg.Audit.Unary(ctx, who, info.FullMethod, req, func(ctx context.Context) (any, error) {
		resp, err := handler(ctx, req)
		return resp, s.toStatus(ctx, err)
	})
}

func (s *Server) auditStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	who := whoOf(stream.Context(), needs[info.FullMethod].permission)
	return s.cfg.Audit.Stream(who, info.FullMethod, stream, func(stream grpc.ServerStream) error {
		return s.toStatus(stream.Context(), handler(srv, stream))
	})
}

// whoOf returns the caller of an authorized call that needs permissions, for the audit log.
func whoOf(ctx context.Context, needed auth.Permissions) auditcall.Who {
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	return auditcall.Who{Principal: caller.Principal.Name, Via: caller.Via.Name, Permission: needed.String()}
}
