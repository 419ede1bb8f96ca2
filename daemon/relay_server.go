package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// beginTimeout bounds the time until the first message of a stream is complete.
const beginTimeout = handshakeTimeout

// grpcBegins is the beginning of every gRPC connection, and of no JSON-RPC message.
var grpcBegins = []byte("PRI ")

// relayServer serves the streams of the relay. The first bytes of a stream tell gRPC
// from JSON-RPC.
type relayServer struct {
	endpoint *relay.Endpoint
	grpc     *relayListener
	clients  *clients
	logger   *slog.Logger
	large    *wsconn.Budget // for JSON-RPC messages that are written in parts
	serving  sync.WaitGroup
}

func newRelayServer(cfg config.Config, clients *clients, logger *slog.Logger) *relayServer {
	silence := time.Duration(cfg.RelaySilence)
	endpoint := relay.NewEndpoint(relay.Config{
		Role: relay.Executor, Streams: int(cfg.RelayStreams), MessageBytes: int(cfg.Request), Logger: logger,
		SilenceTimeout: silence, HeartbeatInterval: silence / 3, ProbeTimeout: min(relay.DefaultProbeTimeout, silence),
	})
	large := wsconn.NewBudget(int64(cfg.AnswersTotal))
	large.Setting = "answer_bytes_total"
	return &relayServer{endpoint: endpoint, grpc: newRelayListener(), clients: clients, logger: logger, large: large}
}

// accept accepts streams until the endpoint is closed.
func (r *relayServer) accept() {
	for {
		stream, err := r.endpoint.Accept(context.Background())
		if err != nil {
			return
		}
		r.serving.Go(func() { r.serve(stream) })
	}
}

// serve serves a JSON-RPC client to its end, and passes a gRPC connection to the gRPC
// server. One without a request is closed when that stops, because the server waits
// for handshakes.
func (r *relayServer) serve(stream *relay.Stream) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), beginTimeout, errors.New("the first message took too long"))
	defer cancel()
	first, err := stream.Receive(ctx)
	switch {
	case err != nil:
		r.logger.Debug("a relay stream ended before its first message", "stream", stream.ID(), "error", err)
		stream.Reset(relay.ReasonProtocolError)
	case bytes.HasPrefix(first, grpcBegins):
		conn := newRelayedConn(relay.NewConn(stream), stream.ID(), first)
		if !r.grpc.deliver(conn) {
			stream.Reset(relay.ReasonGoingAway)
			return
		}
		select {
		case <-conn.begun:
		case <-r.grpc.closed:
			_ = conn.Close()
		}
	case r.clients.refusing.Load():
		stream.Reset(relay.ReasonGoingAway)
	default:
		r.clients.serveTransport(context.Background(), auth.Relay.Name, newClientAuthInfo(relayCredentials()), newRelayTransport(stream, first, r.large))
	}
}

// wait waits for all clients, after the endpoint was closed.
func (r *relayServer) wait() { r.serving.Wait() }
