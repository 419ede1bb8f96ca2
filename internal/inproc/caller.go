package inproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// As returns a connection over the channel whose calls have another AuthInfo, for
// a program that makes calls on behalf of others. It ends with the channel.
func (ch *Channel) As(info credentials.AuthInfo) grpc.ClientConnInterface {
	return &callerConn{channel: ch, peer: newPeer(info)}
}

func newPeer(info credentials.AuthInfo) *peer.Peer {
	return &peer.Peer{Addr: Addr{}, LocalAddr: Addr{}, AuthInfo: info}
}

// program is the peer of calls that this program makes on its own behalf.
var program = newPeer(AuthInfo{})

// callerConn is a channel with the AuthInfo of another caller.
type callerConn struct {
	channel *Channel
	peer    *peer.Peer
}

// Invoke implements grpc.ClientConnInterface.
func (c *callerConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.channel.invoke(ctx, c.peer, method, args, reply, opts)
}

// NewStream implements grpc.ClientConnInterface.
func (c *callerConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.channel.open(ctx, c.peer, desc, method, opts)
}
