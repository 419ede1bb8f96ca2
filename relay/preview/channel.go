package preview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/relay/channels"
	"github.com/execwire/execwire/relay/rendezvous"
)

// dialTimeout bounds all of a connection to a port, whose own limit is at the executor.
const dialTimeout = 30 * time.Second

var errDial = fmt.Errorf("no connection within %v: %w", dialTimeout, context.DeadlineExceeded)

// dial connects to the port of a request.
func (p *Previews) dial(ctx context.Context, of *request) (net.Conn, error) {
	trace := tracing.FromContext(ctx).Context()
	ctx, cancel := context.WithTimeoutCause(client.WithTrace(ctx, trace.Parent(), trace.State()), dialTimeout, errDial)
	defer cancel()
	conn, lost, err := p.dialOnce(ctx, of)
	if lost {
		// It was lost before the executor answered, perhaps with an earlier server of
		// the executor.
		conn, _, err = p.dialOnce(ctx, of)
	}
	return conn, err
}

// dialOnce connects over the channel of the principal, and reports whether that was lost.
func (p *Previews) dialOnce(ctx context.Context, of *request) (conn net.Conn, lost bool, err error) {
	ch, err := p.channels.Acquire(ctx, of.access.principal, of.to.executor)
	if errors.Is(err, channels.ErrClosed) {
		err = rendezvous.ShuttingDown()
	}
	if err != nil {
		return nil, false, err
	}
	to, err := ch.Client().DialPort(ctx, client.PortAddress{Port: of.to.port})
	if err != nil {
		if lost = status.Code(err) == codes.Unavailable || errors.Is(err, client.ErrClosed); lost {
			ch.Forget()
		}
		ch.Release()
		return nil, lost, err
	}
	return &portConn{PortConn: to, release: ch.Release}, false, nil
}

// portConn is a connection that uses a channel.
type portConn struct {
	*client.PortConn
	release func()
}

// Close implements net.Conn.
func (c *portConn) Close() error {
	defer c.release()
	return c.PortConn.Close()
}
