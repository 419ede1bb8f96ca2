package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// relayServer serves the streams of the relay. The first bytes of a stream tell gRPC
// from JSON-RPC.
type relayServer struct {
	endpoint *relay.Endpoint
	grpc     *listen.Queue // of the gRPC server
	begin    time.Duration // bounds the time until the first message of a stream is complete
	clients  *clients
	logger   *slog.Logger
	large    *wsconn.Budget // for JSON-RPC messages that are written in parts
	serving  sync.WaitGroup
}

func newRelayServer(cfg config.Config, grpc *listen.Queue, clients *clients, logger *slog.Logger) *relayServer {
	silence := time.Duration(cfg.RelaySilence)
	endpoint := relay.NewEndpoint(relay.Config{
		Role: relay.Executor, Streams: int(cfg.RelayStreams), MessageBytes: int(cfg.Request), Logger: logger,
		SilenceTimeout: silence, HeartbeatInterval: silence / 3, ProbeTimeout: min(relay.DefaultProbeTimeout, silence),
	})
	large := wsconn.NewBudget(int64(cfg.AnswersTotal))
	large.Setting = "answer_bytes_total"
	return &relayServer{endpoint: endpoint, grpc: grpc, begin: time.Duration(cfg.HandshakeTimeout), clients: clients, logger: logger, large: large}
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
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.begin, errors.New("the first message took too long"))
	defer cancel()
	first, trace, err := stream.ReceiveTraced(ctx)
	switch {
	case err != nil:
		r.logger.Debug("a relay stream ended before its first message", "stream", stream.ID(), "error", err)
		stream.Reset(relay.ReasonProtocolError)
	case listen.IsGRPC(first):
		conn := newRelayedConn(relay.NewConn(stream), stream.ID(), first)
		if !r.grpc.Deliver(conn) {
			stream.Reset(relay.ReasonGoingAway)
			return
		}
		select {
		case <-conn.begun:
		case <-r.grpc.Closed():
			_ = conn.Close()
		}
	case r.clients.refusing.Load():
		stream.Reset(relay.ReasonGoingAway)
	default:
		by := audit.Caller{Credential: shownRelay, Peer: relayAddr{stream.ID()}.String()}
		r.clients.serveTransport(context.Background(), auth.Relay.Name, newClientAuthInfo(relayCredentials(), by), newRelayTransport(stream, first, trace, r.large))
	}
}

// wait waits for all clients, after the endpoint was closed.
func (r *relayServer) wait() { r.serving.Wait() }
