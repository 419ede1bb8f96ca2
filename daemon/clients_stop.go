package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// disconnectTimeout bounds the wait for JSON-RPC connections to end once they were
// closed. Most of it is the close handshake of a websocket whose client does not
// answer.
const disconnectTimeout = 15 * time.Second

// lastResponsesTimeout bounds the wait for the HTTP server to send what handlers have
// written.
const lastResponsesTimeout = time.Second

var (
	// errStopping ends JSON-RPC connections and streams of reflection.
	errStopping = errors.New("the server stops")
	// errDisconnect ends the wait for connections that do not end.
	errDisconnect = fmt.Errorf("failed to wait for connections whose calls hang: gave up after %v", disconnectTimeout)
)

// refuse rejects new clients and makes /readyz fail.
func (c *clients) refuse() { c.refusing.Store(true) }

// stop ends every connection once its client has received the end of its feeds, or
// does not receive it in time. It returns when all connections have ended and the
// listeners are closed. Connections that hang are left behind. Calling it again
// returns at once.
func (c *clients) stop() error {
	c.refuse()
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		return nil
	}
	c.stopping = true
	for one := range c.live {
		c.cancelIdle(one)
	}
	if len(c.live) == 0 {
		c.closeLeft()
	}
	c.mu.Unlock()
	if !within(flushTimeout, c.left) {
		if cut := c.disconnectAll(errFlush); cut > 0 {
			c.logger.Warn("disconnected clients that did not read the end of their feeds or responses", "clients", cut, "reason", errFlush.Error())
		}
	}
	late, cancel := context.WithTimeoutCause(context.Background(), disconnectTimeout, errDisconnect)
	defer cancel()
	err := c.handler.Shutdown(late)
	select {
	case <-c.left:
	case <-late.Done():
		err = errDisconnect
	}
	sent, cancelSent := context.WithTimeout(context.Background(), lastResponsesTimeout)
	defer cancelSent()
	_ = c.server.Shutdown(sent) // Close disconnects those who do not receive them
	return errors.Join(err, c.server.Close())
}

// lose ends every connection as if it had been lost, and rejects new clients. It returns
// when all connections have ended, or when ctx ends; then it returns its cause.
func (c *clients) lose(ctx context.Context) error {
	c.refuse()
	closed := c.server.Close() // the connections of HTTP requests, and not those of websockets
	c.disconnectAll(gateway.ErrReplaced)
	return errors.Join(closed, c.handler.Shutdown(ctx))
}

// disconnectAll ends all connections, and returns how many of them had undelivered
// feeds or responses.
func (c *clients) disconnectAll(cause error) (cut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.live {
		one.cancel(cause)
		if one.pending > 0 {
			cut++
		}
	}
	return cut
}

// trackedConn makes the calls of one client. It counts the open feeds of its session,
// and marks its connection as in use during a call.
type trackedConn struct {
	grpc.ClientConnInterface
	clients *clients
	client  *clientConn
}

// Invoke implements grpc.ClientConnInterface.
func (t *trackedConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	defer t.client.admitted.Use(nil)()
	return t.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (t *trackedConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	end := t.client.admitted.Use(nil)
	stream, err := t.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(stream.Context(), end)
	if method != execwirev1.SessionService_AttachSession_FullMethodName {
		return stream, nil
	}
	// The gateway ends the context when the client has received all of the feed.
	t.clients.addPending(t.client, 1)
	context.AfterFunc(ctx, func() { t.clients.addPending(t.client, -1) })
	return stream, nil
}
