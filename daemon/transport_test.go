package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/config"
)

func TestConnection_StreamLimit(t *testing.T) {
	const limit = 10
	s := serveWith(t, func(cfg *config.Config) { cfg.Streams = limit }, "tcp://127.0.0.1:0")
	conn := s.dial(0)
	health := healthpb.NewHealthClient(conn)
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	for range limit {
		watch, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	short, end := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer end()
	if _, err := health.Check(short, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one stream too many: %v", err)
	}
	if _, err := healthpb.NewHealthClient(s.dial(0)).Check(s.ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
	cancel(errors.New("the test ends the watches"))
	if _, err := health.Check(s.ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}

func TestCall_MetadataLimit(t *testing.T) {
	s := serveWith(t, func(cfg *config.Config) { cfg.HeaderList = 16 << 10 }, "tcp://127.0.0.1:0")
	conn := s.dial(0)
	check := func(size int) error {
		ctx := metadata.AppendToOutgoingContext(s.ctx, "x-much", strings.Repeat("~", size))
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		return err
	}
	for range 2 { // the first call may begin before the client has received the limit
		if err := check(15 << 10); err != nil {
			t.Errorf("metadata within the limit: %v", err)
		}
		if err := check(17 << 10); status.Code(err) != codes.Internal {
			t.Errorf("metadata above the limit: %v", err)
		}
	}
}
