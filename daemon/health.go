package daemon

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthServer is gRPC's, but for its watches: those would outlast everything
// else, and a graceful stop waits for them.
type healthServer struct {
	*health.Server

	mu       sync.Mutex
	stopping bool
	watches  map[*healthWatch]struct{}
}

// healthWatch is one Watch.
type healthWatch struct {
	healthpb.Health_WatchServer
	server *healthServer
	ctx    context.Context
	end    context.CancelCauseFunc
	final  bool // was told what Shutdown does not change; guarded by server.mu
}

var errStopped = errors.New("the server has stopped")

func newHealthServer() *healthServer {
	return &healthServer{Server: health.NewServer(), watches: make(map[*healthWatch]struct{})}
}

// Watch implements the RPC.
func (h *healthServer) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	w := &healthWatch{Health_WatchServer: stream, server: h, ctx: ctx, end: end}
	h.mu.Lock()
	h.watches[w] = struct{}{}
	h.mu.Unlock()
	err := h.Server.Watch(req, w)
	h.mu.Lock()
	delete(h.watches, w)
	h.mu.Unlock()
	if errors.Is(context.Cause(ctx), errStopped) {
		return status.Error(codes.Unavailable, errStopped.Error())
	}
	return err
}

// endWatches ends every watch as soon as its client was told how things stand.
// Call it after Shutdown.
func (h *healthServer) endWatches() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	for w := range h.watches {
		if w.final {
			w.end(errStopped)
		}
	}
}

// Context is what gRPC's Watch ends with.
func (w *healthWatch) Context() context.Context { return w.ctx }

// Send tells the client.
func (w *healthWatch) Send(resp *healthpb.HealthCheckResponse) error {
	err := w.Health_WatchServer.Send(resp)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.final = resp.GetStatus() != healthpb.HealthCheckResponse_SERVING
	if w.final && w.server.stopping {
		w.end(errStopped)
	}
	return err
}
