package daemon

import (
	"runtime"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/reflection"
	"github.com/execwire/execwire/server"
	"github.com/execwire/execwire/server/admin"
)

// Sizes of the transport. The windows are static, which disables gRPC's bandwidth
// estimation; the connection's must be set with the stream's or it stays at 64 KiB.
const (
	streamWindow     = 8 << 20
	connectionWindow = 16 << 20
	bufferSize       = 128 << 10
)

// unauthenticatedHeaders is how many of the largest headers a connection may send
// before a caller is authenticated on it.
const unauthenticatedHeaders = 4

// maxPingInterval is the largest minimum interval of clients' pings: half of the 10 s
// below which gRPC's Go clients do not go.
const maxPingInterval = 5 * time.Second

// newGRPCServer creates the server for all listeners. It has reflection; the table of
// permissions refuses that to callers over TLS.
func (d *Daemon) newGRPCServer() *grpc.Server {
	s := grpc.NewServer(append(transportOptions(d.settings()),
		grpc.Creds(listenerCredentials{listen.PeerCredentials()}),
		grpc.InTapHandle(d.authenticator.admit),
		grpc.ChainUnaryInterceptor(d.metrics.countUnary),
		grpc.ChainUnaryInterceptor(append(d.server.UnaryInterceptors(), useUnary)...),
		grpc.ChainStreamInterceptor(d.metrics.countStream),
		grpc.ChainStreamInterceptor(append(d.server.StreamInterceptors(), useStream, d.streams.intercept)...),
		grpc.WaitForHandlers(true),
		// Goroutines whose stacks have grown already: a new one copies its stack in every call.
		grpc.NumStreamWorkers(uint32(2*runtime.GOMAXPROCS(0))),
		grpc.UnknownServiceHandler(server.UnknownMethod),
	)...)
	d.server.Register(s)
	admin.Register(s, adminConfig(d))
	healthpb.RegisterHealthServer(s, d.health)
	reflection.Register(s)
	return s
}

// receiveLimit is the largest message that the transport accepts: twice the limit, so
// that the server can explain the error.
func receiveLimit(cfg config.Config) int { return 2 * int(cfg.Message) }

// transportOptions are the sizes, limits and intervals of connections.
func transportOptions(cfg config.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(time.Duration(cfg.HandshakeTimeout)),
		grpc.MaxRecvMsgSize(receiveLimit(cfg)),
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

// pingPolicy is the minimum interval of clients' pings: a third of the server's, at
// most maxPingInterval.
func pingPolicy(cfg config.Config) keepalive.EnforcementPolicy {
	return keepalive.EnforcementPolicy{
		MinTime:             min(time.Duration(cfg.KeepaliveInterval)/3, maxPingInterval),
		PermitWithoutStream: true,
	}
}
