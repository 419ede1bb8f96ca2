package daemon

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// refuser is a gRPC server that fails every call of clients that a forward does
// not accept, with the reason. A forward itself does not read what clients send.
type refuser struct {
	server *grpc.Server
	conns  *relayListener // of connections that are handed to it, here those of listeners
}

func newRefuser() *refuser {
	return &refuser{
		conns: newRelayListener(),
		server: grpc.NewServer(grpc.Creds(listen.PeerCredentials(nil)), grpc.ConnectionTimeout(handshakeTimeout),
			grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				method, _ := grpc.MethodFromServerStream(stream)
				return server.MayCall(auth.Caller{}, refusalOf(stream), method, nil)
			})),
	}
}

// refusalOf returns why the client of a call is not accepted.
func refusalOf(stream grpc.ServerStream) error {
	if p, ok := peer.FromContext(stream.Context()); ok {
		if info, ok := p.AuthInfo.(listen.LoopbackAuthInfo); ok && info.Refused() != nil {
			return info.Refused()
		}
	}
	return &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: errUnknownDoor}
}

// serve answers clients until stop.
func (r *refuser) serve() { _ = r.server.Serve(r.conns) } // fails only when it ends

// refuse has the calls on conn fail. It waits until serve has taken the
// connection, or has ended.
func (r *refuser) refuse(conn net.Conn) {
	if !r.conns.hand(conn) {
		_ = conn.Close() // its client is cut off
	}
}

// stop ends serve and all connections, and waits for their calls.
func (r *refuser) stop() { r.server.Stop() }

// refusedPeer returns why the client of an accepted connection is none of those
// that the listener is for; nil if it is one.
func refusedPeer(conn net.Conn) error {
	info, err := listen.AuthInfoOf(conn)
	if err != nil {
		return err
	}
	if local, ok := info.(listen.LoopbackAuthInfo); ok {
		return local.Refused()
	}
	return nil
}
