package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	authmw "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The order of the interceptors matters: the log sees what the client sees, so
// it is outermost, but for the record that it reads, and errors are translated
// right below it; a panic anywhere becomes an error before it is translated;
// nobody's request is looked at before it is known who sent it, and that it may.

// UnaryInterceptors returns what every unary call goes through, outermost
// first.
func (s *Server) UnaryInterceptors() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		recordUnary,
		logging.UnaryServerInterceptor(s.callLogger(), callLogOptions()...),
		s.translateUnary,
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		authmw.UnaryServerInterceptor(s.authorize),
		s.validateUnary,
	}
}

// StreamInterceptors returns what every streaming call goes through, outermost
// first.
func (s *Server) StreamInterceptors() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{
		recordStream,
		logging.StreamServerInterceptor(s.callLogger(), callLogOptions()...),
		s.translateStream,
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(s.recovered)),
		authmw.StreamServerInterceptor(s.authorize),
		s.validateStream,
	}
}

// callLogger writes the lines of the logging interceptor to slog. The message
// of an error stays out of them, because it can name a caller's commands and
// paths; its reason says enough to count and to search by.
func (s *Server) callLogger() logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "grpc.error" {
				fields = slices.Delete(fields, i, i+2)
				break
			}
		}
		for i, field := range fields {
			if text, ok := field.(string); ok {
				fields[i] = shortened(text)
			}
		}
		if isOrdinaryEnd(fields) {
			level = logging.LevelDebug
		}
		s.cfg.Logger.Log(ctx, slog.Level(level), msg, append(fields, callRecordOf(ctx).fields()...)...)
	})
}

// ordinaryEnds are the reasons with which streams end that nothing is wrong with:
// somebody ended the session, or the server stops and streams are to be resumed.
var ordinaryEnds = []string{
	reasonName(execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED), reasonName(execwirev1.ErrorReason_ERROR_REASON_DRAINING),
}

// isOrdinaryEnd reports whether fields are those of an attachment that ended so.
func isOrdinaryEnd(fields []any) bool {
	method, reason := "", ""
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case logging.MethodFieldKey:
			method, _ = fields[i+1].(string)
		case "reason":
			reason, _ = fields[i+1].(string)
		}
	}
	return method == "AttachSession" && slices.Contains(ordinaryEnds, reason)
}

// maxNameBytes is how much of the name of a call the log repeats, which nobody
// has to be known for to choose.
const maxNameBytes = 100

func shortened(text string) string {
	if len(text) <= maxNameBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxNameBytes], "") + "…"
}

// callLogOptions makes one line of each call.
func callLogOptions() []logging.Option {
	return []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithLevels(callLevel),
		logging.WithDisableLoggingFields("grpc.component", "protocol", logging.MethodTypeFieldKey),
		logging.WithErrorFields(func(err error) logging.Fields {
			return logging.Fields{"reason", reasonOf(err)}
		}),
	}
}

// callLevel says how important the end of a call is. What clients do wrong is
// theirs to log; what the server does wrong is ours.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK, codes.Canceled:
		return logging.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	default:
		return logging.LevelInfo
	}
}

func (s *Server) translateUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, s.toStatus(ctx, err)
}

func (s *Server) translateStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.toStatus(stream.Context(), handler(srv, stream))
}

// recovered turns a panic of a handler into an error for its client. The
// process lives on: one caller's bug is not everybody's.
func (s *Server) recovered(ctx context.Context, panicked any) error {
	s.cfg.Logger.With(callRecordOf(ctx).traceFields()...).Error("a handler panicked", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	return failure(codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, nil, "the server failed; its log says more")
}

func (s *Server) validateUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := authorizeRequest(ctx, req); err != nil {
		return nil, err
	}
	if err := s.validate(req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) validateStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &validatedStream{ServerStream: stream, server: s})
}

// validatedStream checks every message of a client before the handler sees it.
type validatedStream struct {
	grpc.ServerStream
	server *Server
}

// RecvMsg implements grpc.ServerStream.
func (v *validatedStream) RecvMsg(m any) error {
	if err := v.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return v.server.validate(m)
}

// validate checks a message's size and its fields. gRPC itself refuses only
// messages of twice the size, because what it refuses it cannot explain.
func (s *Server) validate(req any) error {
	message, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	if limit := s.cfg.Limits.Message; proto.Size(message) > limit {
		metadata := map[string]string{}
		details := messageQuota.describe(int64(limit), metadata)
		return failure(codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE, metadata,
			"the message is larger than "+strconv.Itoa(limit)+" bytes: split it", details...)
	}
	return validateFields(message)
}
