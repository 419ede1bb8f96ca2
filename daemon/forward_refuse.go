package daemon

import (
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// refusingServer is a gRPC server that fails every call of rejected clients of a
// forward with the reason. The forward itself does not parse what clients send.
type refusingServer struct {
	server *grpc.Server
	conns  *listen.Queue // of rejected connections
}

// timeout bounds the handshakes of its connections.
func newRefusingServer(timeout time.Duration) *refusingServer {
	return &refusingServer{
		conns: listen.NewQueue(),
		server: grpc.NewServer(grpc.Creds(listen.PeerCredentials()), grpc.ConnectionTimeout(timeout),
			grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				method, _ := grpc.MethodFromServerStream(stream)
				var refusal error
				if p, ok := peer.FromContext(stream.Context()); ok {
					info, _ := p.AuthInfo.(listen.AuthInfo)
					refusal = info.Refused()
				}
				return server.MayCall(auth.Caller{}, refusal, method, nil) // a caller without permissions
			})),
	}
}

// serve answers clients until stop.
func (r *refusingServer) serve() { _ = r.server.Serve(r.conns) } // fails only when it ends

// refuse fails the calls on conn. It blocks until serve has accepted the connection,
// or has ended.
func (r *refusingServer) refuse(conn net.Conn) {
	if !r.conns.Deliver(conn) {
		_ = conn.Close() // the server has ended
	}
}

// stop ends serve and all connections, and waits for their calls.
func (r *refusingServer) stop() { r.server.Stop() }

// refusedPeer returns why the listener does not accept the client of a connection;
// nil if it does.
func refusedPeer(conn net.Conn) error {
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return err
	}
	return info.Refused()
}
