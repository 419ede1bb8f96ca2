package daemon

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errStopping is why connections of JSON-RPC end.
var errStopping = errors.New("the server stops")

// refuse lets no new client in, and has /readyz say so.
func (c *clients) refuse() { c.refusing.Store(true) }

// stop ends every connection when its client has been told what there is to
// tell, or does not receive it in time, and returns when all are gone and the
// listeners closed. Calling it again returns at once.
func (c *clients) stop() {
	c.refuse()
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		return
	}
	c.stopping = true
	for one := range c.live {
		c.dismiss(one)
	}
	if len(c.live) == 0 {
		c.hasLeft()
	}
	c.mu.Unlock()
	if !within(flushTimeout, c.left) {
		c.logger.Warn("cut clients off", "reason", errFlush.Error())
		c.cutOff(errFlush)
	}
	// Those that are left close their connections, which is bounded.
	_ = c.handler.Shutdown(context.Background())
	<-c.left
	if err := c.server.Close(); err != nil {
		c.logger.Warn("failed to close a listener", "error", err.Error())
	}
}

// cutOff ends the connections of all clients.
func (c *clients) cutOff(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.live {
		one.cancel(cause)
	}
}

// tracked are the calls of one client. It notices when the feed of its session
// begins and ends.
type tracked struct {
	grpc.ClientConnInterface
	clients *clients
	client  *client
}

// NewStream implements grpc.ClientConnInterface.
func (t *tracked) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := t.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil || method != execwirev1.SessionService_AttachSession_FullMethodName {
		return stream, err
	}
	t.clients.change(t.client, 1)
	return &trackedFeed{ClientStream: stream, ended: sync.OnceFunc(func() { t.clients.change(t.client, -1) })}, nil
}

// trackedFeed is the feed of a session.
type trackedFeed struct {
	grpc.ClientStream
	ended func()
}

// RecvMsg implements grpc.ClientStream. Whoever receives the end of the feed has
// passed on what came before it.
func (f *trackedFeed) RecvMsg(m any) error {
	err := f.ClientStream.RecvMsg(m)
	if err != nil {
		f.ended()
	}
	return err
}
