package daemon

import (
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// Sizes of the transport. The windows are static, which turns gRPC's bandwidth
// estimation off; the connection's must be set with the stream's or it stays at
// 64 KiB.
const (
	streamWindow     = 8 << 20
	connectionWindow = 16 << 20
	bufferSize       = 128 << 10
)

// handshakeTimeout is how long a connection may take to shake hands, TLS and
// HTTP/2.
const handshakeTimeout = 20 * time.Second

// unadmittedHeaders is how many of the largest headers fit into what a
// connection may send before somebody is let in on it.
const unadmittedHeaders = 4

// maxPingInterval is the longest time between a client's pings that the server
// may demand, however seldom it asks itself: half of the 10 s that gRPC's Go
// clients do not go below.
const maxPingInterval = 5 * time.Second

// newGRPCServer makes the server for all listeners. Reflection is on, but not
// for callers that come by TLS: the table of what calls need sees to that.
func (d *Daemon) newGRPCServer() (*grpc.Server, *healthServer, *reflectionStreams) {
	streams := newReflectionStreams()
	s := grpc.NewServer(append(transportOptions(d.cfg),
		grpc.Creds(doorCredentials{listen.PeerCredentials(d.doorkeeper.handshakeFailed)}),
		grpc.InTapHandle(d.doorkeeper.admit),
		grpc.ChainUnaryInterceptor(append(d.server.UnaryInterceptors(), useUnary)...),
		grpc.ChainStreamInterceptor(append(d.server.StreamInterceptors(), useStream, streams.intercept)...),
		grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(server.UnknownMethod),
	)...)
	d.server.Register(s)
	healthServer := newHealthServer()
	healthpb.RegisterHealthServer(s, healthServer)
	reflection.Register(s)
	return s, healthServer, streams
}

// transportOptions are the sizes, limits and intervals of connections.
func transportOptions(cfg config.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		// Twice the limit, so that the server can explain what it refuses.
		grpc.MaxRecvMsgSize(2 * int(cfg.Message)),
		grpc.MaxConcurrentStreams(uint32(cfg.Streams)),
		grpc.MaxHeaderListSize(uint32(cfg.HeaderList)),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.WriteBufferSize(bufferSize),
		grpc.ReadBufferSize(bufferSize),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    time.Duration(cfg.KeepaliveInterval),
			Timeout: time.Duration(cfg.KeepaliveTimeout),
		}),
		grpc.KeepaliveEnforcementPolicy(pingPolicy(cfg)),
	}
}

// pingPolicy says how often clients may ping: three times as often as the
// server does, and whatever that is, as often as they may have to.
func pingPolicy(cfg config.Config) keepalive.EnforcementPolicy {
	return keepalive.EnforcementPolicy{
		MinTime:             min(time.Duration(cfg.KeepaliveInterval)/3, maxPingInterval),
		PermitWithoutStream: true,
	}
}
