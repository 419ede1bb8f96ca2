package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testrace"
)

// A call whose request does not arrive never reaches an interceptor. Its wrong token counts
// as a failed attempt nevertheless.
func TestFailedAttempts_CallWithoutRequest_Counts(t *testing.T) {
	const most = 3
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = most, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	conn := l.dial(onTLS)
	for range most {
		ctx, leave := context.WithCancelCause(l.showing("Bearer x"))
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, execwirev1.ProcessService_ListProcesses_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		leave(nil)
		_ = stream.RecvMsg(new(execwirev1.ListProcessesResponse)) // the call is cancelled
	}
	l.expect(list(l.as("ci"), conn), codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
}

// The credentials of a public call are ignored: they are no failed attempt, and do not
// authenticate the connection.
func TestHealth_DoesNotAuthenticateConnection(t *testing.T) {
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	conn := l.dial(onTLS)
	health := healthpb.NewHealthClient(conn)
	for _, ctx := range []context.Context{l.showing("Bearer x"), l.as("ci"), l.showing("Bearer x")} {
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := health.Check(l.ctx, &healthpb.HealthCheckRequest{Service: strings.Repeat("x", 3<<20)}); status.Code(err) != codes.Unavailable {
		t.Errorf("a large request gets %v, want the connection closed", err)
	}
	if err := list(l.as("ci"), l.dial(onTLS)); err != nil {
		t.Errorf("a right token: %v", err)
	}
}

// One wrong token is one failed attempt, although several components check it.
func TestFailedAttempts_OneToken_CountsOnce(t *testing.T) {
	const most = 4
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = most, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	for range most {
		l.expectUnknown(list(l.showing("Bearer x"), l.dial(onTLS)))
	}
	l.expect(list(l.as("ci"), l.dial(onTLS)), codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
}

// A call is authenticated by the table at the time of its request. This holds for the first
// call of a connection too, whose header was authenticated earlier.
func TestAuthenticate_DelayedRequest_UsesCurrentTable(t *testing.T) {
	testrace.Slow(t) // files are looked at once a second
	l := lock(t, many, func(l *locked) string { return l.principal("ci", `"all"`) })
	for _, listener := range []int{onTLS, onGRPC} {
		l.writeTable(l.principal("ci", `"all"`))
		conn, other := l.dial(listener), l.dial(onUnix)
		for list(l.as("ci"), other) != nil {
			if l.ctx.Err() != nil {
				t.Fatal("ci is never accepted")
			}
			time.Sleep(50 * time.Millisecond)
		}
		stream, err := conn.NewStream(l.as("ci"), &grpc.StreamDesc{ClientStreams: true}, execwirev1.ProcessService_ListProcesses_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		// The header was read: a later call on the connection was answered.
		if _, err := healthpb.NewHealthClient(conn).Check(l.ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		l.writeTable(l.principal("other", `"all"`))
		for list(l.as("ci"), other) == nil {
			if l.ctx.Err() != nil {
				t.Fatal("ci is never rejected")
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err := stream.SendMsg(&execwirev1.ListProcessesRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		l.expectUnknown(stream.RecvMsg(new(execwirev1.ListProcessesResponse)))
	}
}
