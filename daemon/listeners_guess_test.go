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
)

// A call whose request never comes is never seen by an interceptor, but a
// connection shows whether somebody was let in on it: its token is a guess as
// any other.
func TestGuessesWithoutARequestAreCounted(t *testing.T) {
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
		_ = stream.RecvMsg(new(execwirev1.ListProcessesResponse)) // it has been left
	}
	l.expect(list(l.as("ci"), conn), codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
}

// What is shown with a call that is anybody's is not looked at, so that it tells
// nothing: neither is it counted, nor is the connection that of a principal.
func TestHealth_DoesNotAdmitTheConnection(t *testing.T) {
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

// One wrong token is one failed attempt, wherever it is looked at.
func TestAGuessCountsOnce(t *testing.T) {
	const most = 4
	l := lock(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = most, config.Duration(time.Hour)
	}, func(l *locked) string { return l.principal("ci", `"all"`) })
	for range most {
		l.expectUnknown(list(l.showing("Bearer x"), l.dial(onTLS)))
	}
	l.expect(list(l.as("ci"), l.dial(onTLS)), codes.ResourceExhausted, "TOO_MANY_FAILED_ATTEMPTS")
}

// A call is authenticated by the table at the time of its request, also the first
// call of a connection, whose header was authenticated before.
func TestAuthenticate_DelayedRequest_UsesCurrentTable(t *testing.T) {
	if testing.Short() {
		t.Skip("files are looked at once a second")
	}
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
		// It has been looked at: what comes after it on the connection has.
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
