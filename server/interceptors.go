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
	"sync/atomic"
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

// interceptors are those of every call, and the translation of its error. They know no service.
type interceptors struct {
	cfg      *Config // of the server
	current  *atomic.Pointer[Limits]
	instance string
}

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
var normalEnds = []execwirev1.ErrorReason{
	execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED, execwirev1.ErrorReason_ERROR_REASON_DRAINING,
}

// callLog has what the log says about the caller of a call, once it is authenticated.
type callLog struct {
	begun   time.Time
	caller  auth.Caller
	refusal error
}

// callLogKey is the context key of the callLog.
type callLogKey struct{}

func (i *interceptors) logUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	log := &callLog{begun: time.Now()}
	resp, err := handler(context.WithValue(ctx, callLogKey{}, log), req)
	i.logCall(ctx, info.FullMethod, log, err)
	return resp, err
}

func (i *interceptors) logStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	log := &callLog{begun: time.Now()}
	wrapped := middleware.WrapServerStream(stream)
	wrapped.WrappedContext = context.WithValue(stream.Context(), callLogKey{}, log)
	err := handler(srv, wrapped)
	i.logCall(stream.Context(), info.FullMethod, log, err)
	return err
}

// logCall writes one line about a call that has ended. It has the reason of an error but not
// its message, which can contain commands and paths of a caller. The line is composed only
// if it is written: the logging interceptor of go-grpc-middleware composes it before, which
// takes 10 us of each call.
func (i *interceptors) logCall(ctx context.Context, fullMethod string, log *callLog, err error) {
	code := status.Code(err)
	level := callLevel(code)
	if fullMethod == execwirev1.SessionService_AttachSession_FullMethodName && slices.Contains(normalEnds, errorinfo.Reason(err)) {
		level = slog.LevelDebug
	}
	if !i.cfg.Logger.Enabled(ctx, level) {
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
		fields = append(fields, "reason", errorinfo.Of(err).GetReason())
	}
	fields = append(append(fields, log.callerFields()...), traceFields(ctx)...)
	i.cfg.Logger.Log(ctx, level, "finished call", fields...)
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

func (i *interceptors) translateUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, i.toStatus(ctx, err)
}

func (i *interceptors) translateStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return i.toStatus(stream.Context(), handler(srv, stream))
}

// recovered turns a panic of a handler into an error of its call. The server
// continues.
func (i *interceptors) recovered(ctx context.Context, panicked any) error {
	i.cfg.Logger.With(traceFields(ctx)...).Error("a handler panicked", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	return newStatus(codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, "the server failed; its log says more")
}

func (i *interceptors) checkUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := i.check(ctx, req); err != nil {
		return nil, err
	}
	traffic := i.cfg.Traffic(ctx)
	traffic.Received(req)
	resp, err := handler(ctx, req)
	if err == nil {
		traffic.Sent(resp)
	}
	return resp, err
}

func (i *interceptors) checkStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &checkedStream{ServerStream: stream, interceptors: i, traffic: i.cfg.Traffic(stream.Context())})
}

// checkedStream checks every message of a client before the handler receives it, and
// counts what messages carry.
type checkedStream struct {
	grpc.ServerStream
	interceptors *interceptors
	traffic      *traffic.Bytes
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
	return c.interceptors.check(c.Context(), m)
}

// check authorizes what a message itself asks for, and checks its size and its fields.
// gRPC itself only rejects messages of twice the size, because it cannot explain why.
func (i *interceptors) check(ctx context.Context, req any) error {
	if err := authorizeRequest(ctx, req); err != nil {
		method, _ := grpc.Method(ctx)
		i.cfg.Audit.Denied(ctx, whoOf(ctx, needOf(req)), method, req, err, "permission "+needOf(req).String())
		return err
	}
	message, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	if limit := int(i.current.Load().GetMessageBytes()); proto.Size(message) > limit {
		return translation{codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE}.failure(
			"the message is larger than "+strconv.Itoa(limit)+" bytes: split it").limit(messageQuota, int64(limit)).status()
	}
	return validateFields(message)
}

func (i *interceptors) auditUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	who := whoOf(ctx, needs[info.FullMethod].permission|needOf(req))
	return i.cfg.Audit.Unary(ctx, who, info.FullMethod, req, func(ctx context.Context) (any, error) {
		resp, err := handler(ctx, req)
		return resp, i.toStatus(ctx, err)
	})
}

func (i *interceptors) auditStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	who := whoOf(stream.Context(), needs[info.FullMethod].permission)
	return i.cfg.Audit.Stream(who, info.FullMethod, stream, func(stream grpc.ServerStream) error {
		return i.toStatus(stream.Context(), handler(srv, stream))
	})
}

// whoOf returns the caller of an authorized call that needs permissions, for the audit log.
func whoOf(ctx context.Context, needed auth.Permissions) auditcall.Who {
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	return auditcall.Who{Principal: caller.Principal.Name, Via: caller.Via.Name, Permission: needed.String()}
}
