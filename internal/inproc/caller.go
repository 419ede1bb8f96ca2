package inproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// As returns a connection over the channel, whose calls have another AuthInfo:
// for a program that makes calls for others, whom an interceptor is to tell from
// the program itself. Closing the channel ends it; it holds nothing else.
func (ch *Channel) As(info credentials.AuthInfo) grpc.ClientConnInterface {
	return &caller{channel: ch, as: &peer.Peer{Addr: Addr{}, LocalAddr: Addr{}, AuthInfo: info}}
}

// caller is a channel as somebody uses it.
type caller struct {
	channel *Channel
	as      *peer.Peer
}

// Invoke is that of the channel.
func (c *caller) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.channel.invoke(ctx, c.as, method, args, reply, opts)
}

// NewStream is that of the channel.
func (c *caller) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.channel.open(ctx, c.as, desc, method, opts)
}
