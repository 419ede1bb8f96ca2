package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// partTimeout is how long connections of JSON-RPC may take to end once their
// clients were cut off. Closing a websocket to a client that does not answer
// takes most of it.
const partTimeout = 15 * time.Second

var (
	// errStopping is why connections of JSON-RPC end, and streams of reflection.
	errStopping = errors.New("the server stops")
	// errPart ends the wait for connections that do not.
	errPart = fmt.Errorf("failed to wait for connections whose calls hang: gave up after %v", partTimeout)
)

// refuse lets no new client in, and has /readyz say so.
func (c *clients) refuse() { c.refusing.Store(true) }

// stop ends every connection when its client has been told what there is to
// tell, or does not receive it in time, and returns when all are gone and the
// listeners closed. If some hang it leaves them behind. Calling it again returns
// at once.
func (c *clients) stop() error {
	c.refuse()
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		return nil
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
		if cut := c.cutOff(errFlush); cut > 0 {
			c.logger.Warn("cut clients off", "clients", cut, "reason", errFlush.Error())
		}
	}
	late, cancel := context.WithTimeoutCause(context.Background(), partTimeout, errPart)
	defer cancel()
	err := c.handler.Shutdown(late)
	select {
	case <-c.left:
	case <-late.Done():
		err = errPart
	}
	return errors.Join(err, c.server.Close())
}

// cutOff ends the connections of all clients, and returns how many of them had
// still to be told something. The others may be left that are slow to hang up.
func (c *clients) cutOff(cause error) (cut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.live {
		one.cancel(cause)
		if one.attached > 0 {
			cut++
		}
	}
	return cut
}

// tracked are the calls of one client. It notices when the feed of its session
// begins and is passed on, and has its connection in use while there is a call.
type tracked struct {
	grpc.ClientConnInterface
	clients *clients
	client  *clientConn
}

// use has the connection in use until end is called.
func (t *tracked) use() (end func()) {
	if t.client.admitted == nil {
		return func() {}
	}
	return t.client.admitted.Use(nil)
}

// Invoke implements grpc.ClientConnInterface.
func (t *tracked) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	defer t.use()()
	return t.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (t *tracked) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	end := t.use()
	stream, err := t.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(stream.Context(), end)
	if method != execwirev1.SessionService_AttachSession_FullMethodName {
		return stream, nil
	}
	// The gateway ends the context when the client has been told of what the feed said.
	t.clients.change(t.client, 1)
	context.AfterFunc(ctx, func() { t.clients.change(t.client, -1) })
	return stream, nil
}
