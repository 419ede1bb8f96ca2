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

// beginTimeout is how long the first message of a stream may take to be whole.
const beginTimeout = handshakeTimeout

// grpcBegins is what a connection of gRPC begins with, and no message of JSON-RPC
// does.
var grpcBegins = []byte("PRI ")

// relayDoor is where those come in who are reached through the relay: clients of
// JSON-RPC, and of gRPC, which they show by what they say first.
type relayDoor struct {
	endpoint *relay.Endpoint
	grpc     *relayListener
	clients  *clients
	logger   *slog.Logger
	large    *wsconn.Budget // for messages of JSON-RPC that are written in parts
	serving  sync.WaitGroup
}

func newRelayDoor(cfg config.Config, clients *clients, logger *slog.Logger) (*relayDoor, error) {
	silence := time.Duration(cfg.RelaySilence)
	endpoint, err := relay.NewEndpoint(relay.Config{
		Role: relay.Executor, Streams: int(cfg.RelayStreams), MessageBytes: int(cfg.Request), Logger: logger,
		SilenceTimeout: silence, HeartbeatInterval: silence / 3, ProbeTimeout: min(relay.DefaultProbeTimeout, silence),
	})
	if err != nil {
		return nil, err
	}
	large := wsconn.NewBudget(int64(cfg.AnswersTotal))
	large.Setting = "answer_bytes_total"
	return &relayDoor{endpoint: endpoint, grpc: newRelayListener(), clients: clients, logger: logger, large: large}, nil
}

// accept takes streams until the door is closed.
func (r *relayDoor) accept() {
	for {
		stream, err := r.endpoint.Accept(context.Background())
		if err != nil {
			return
		}
		r.serving.Go(func() { r.serve(stream) })
	}
}

// serve serves a client of JSON-RPC to its end, and hands one of gRPC on. One that has made no request when the gRPC
// server stops is disconnected: the server waits for handshakes.
func (r *relayDoor) serve(stream *relay.Stream) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), beginTimeout, errors.New("the first message took too long"))
	defer cancel()
	first, err := stream.Receive(ctx)
	switch {
	case err != nil:
		r.logger.Debug("a stream of the relay has ended before it began", "stream", stream.ID(), "error", err)
		stream.Reset(relay.ReasonProtocolError)
	case bytes.HasPrefix(first, grpcBegins):
		conn := newRelayedConn(relay.NewConn(stream), stream.ID(), first)
		if !r.grpc.hand(conn) {
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
		r.clients.serveTransport(context.Background(), auth.Relay.Name, newClientAuthInfo(shownByRelay()), newRelayTransport(stream, first, r.large))
	}
}

// wait returns when nobody is served any more, after the endpoint was closed.
func (r *relayDoor) wait() { r.serving.Wait() }
