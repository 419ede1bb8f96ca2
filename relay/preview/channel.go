package preview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/relay/rendezvous"
)

const (
	// openTimeout bounds how long an executor may take to answer, and dialTimeout how
	// long all of a connection to a port may take, whose own limit is at the executor.
	openTimeout = 15 * time.Second
	dialTimeout = 30 * time.Second
	// channelIdleTimeout is how long a channel without connections is kept: once to
	// twice this time.
	channelIdleTimeout = 30 * time.Second
	// streamWindowBytes bounds what waits in the hub of one connection that its client
	// does not read; connectionWindowBytes does not make others wait, because gRPC
	// receives for all of them.
	streamWindowBytes     = 256 << 10
	connectionWindowBytes = 4 << 20
)

var (
	errNoAnswer = fmt.Errorf("the executor did not answer within %v: %w", openTimeout, context.DeadlineExceeded)
	errDial     = fmt.Errorf("no connection within %v: %w", dialTimeout, context.DeadlineExceeded)
	errEnded    = errors.New("the stream to the executor has ended")
)

// channelKey identifies a channel. Principals do not share one, so that its stream
// counts for the principal that uses it.
type channelKey struct{ executor, principal string }

// channel is a gRPC connection to an executor, over one stream of the relay. Its
// goroutine opens and closes it.
type channel struct {
	opened chan struct{}  // closed when client or err is set
	client *client.Client // nil if err is set
	err    error
	stream chan net.Conn // has the stream until gRPC takes it
	ended  chan struct{} // closed when gRPC has closed its stream

	users    int       // guarded by Previews.mu; callers that connect, and connections
	lastUsed time.Time // guarded by Previews.mu
}

// dial connects to the port of a request.
func (p *Previews) dial(ctx context.Context, of *request) (net.Conn, error) {
	trace := tracing.FromContext(ctx).Context()
	ctx, cancel := context.WithTimeoutCause(client.WithTrace(ctx, trace.Parent(), trace.State()), dialTimeout, errDial)
	defer cancel()
	key := channelKey{executor: of.to.executor, principal: of.access.principal}
	conn, lost, err := p.dialOnce(ctx, key, of.to.port)
	if lost != nil {
		// It was lost before the executor answered, perhaps with an earlier server of
		// the executor.
		p.forget(key, lost)
		conn, _, err = p.dialOnce(ctx, key, of.to.port)
	}
	return conn, err
}

// dialOnce connects over the channel of a key, which it opens if there is none. It
// returns the channel if that has failed.
func (p *Previews) dialOnce(ctx context.Context, key channelKey, port uint16) (conn net.Conn, lost *channel, err error) {
	ch, err := p.acquire(key)
	if err != nil {
		return nil, nil, err
	}
	release := sync.OnceFunc(func() { p.release(ch) })
	select {
	case <-ch.opened:
		err = ch.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	to, err := ch.client.DialPort(ctx, client.PortAddress{Port: port})
	if err != nil {
		release()
		if status.Code(err) == codes.Unavailable || errors.Is(err, client.ErrClosed) {
			lost = ch
		}
		return nil, lost, err
	}
	return &portConn{PortConn: to, release: release}, nil, nil
}

// portConn is a connection that counts as a user of its channel.
type portConn struct {
	*client.PortConn
	release func()
}

// Close implements net.Conn.
func (c *portConn) Close() error {
	defer c.release()
	return c.PortConn.Close()
}

// acquire returns the channel of a key, which may not be open yet.
func (p *Previews) acquire(key channelKey) (*channel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, rendezvous.ShuttingDown()
	}
	ch := p.channels[key]
	if ch == nil {
		ch = &channel{opened: make(chan struct{}), stream: make(chan net.Conn, 1), ended: make(chan struct{})}
		p.channels[key] = ch
		p.serving.Go(func() { p.runChannel(key, ch) })
	}
	ch.users++
	return ch, nil
}

// release undoes acquire.
func (p *Previews) release(ch *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch.users--
	ch.lastUsed = time.Now()
}

// forget removes a channel, so that the next caller opens another one.
func (p *Previews) forget(key channelKey, ch *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.channels[key] == ch {
		delete(p.channels, key)
	}
}

// isIdle reports whether a channel has been without users, and then removes it.
func (p *Previews) isIdle(key channelKey, ch *channel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch.users > 0 || time.Since(ch.lastUsed) < channelIdleTimeout {
		return false
	}
	if p.channels[key] == ch {
		delete(p.channels, key)
	}
	return true
}

// runChannel opens a channel and closes it when its stream has ended, it is idle, or the
// previews close.
func (p *Previews) runChannel(key channelKey, ch *channel) {
	defer p.forget(key, ch)
	ch.client, ch.err = p.openChannel(key, ch)
	if ch.err != nil {
		p.forget(key, ch) // before others find it
		close(ch.opened)
		return
	}
	close(ch.opened)
	defer func() {
		_ = ch.client.Close() // ends its connections
		if stream := ch.takeStream(); stream != nil {
			_ = stream.Close()
		}
	}()
	idle := time.NewTicker(channelIdleTimeout)
	defer idle.Stop()
	for {
		select {
		case <-ch.ended:
			return
		case <-p.closing.Done():
			return
		case <-idle.C:
			if p.isIdle(key, ch) {
				return
			}
		}
	}
}

// openChannel opens the stream of a channel. It does not depend on the caller that needs
// it first.
func (p *Previews) openChannel(key channelKey, ch *channel) (*client.Client, error) {
	ctx, cancel := context.WithTimeoutCause(p.closing, openTimeout, errNoAnswer)
	defer cancel()
	stream, err := p.config.Open(ctx, key.principal, key.executor)
	if err != nil {
		return nil, err
	}
	ch.stream <- &channelConn{Conn: stream, end: sync.OnceFunc(func() { close(ch.ended) })}
	conn, err := grpc.NewClient("passthrough:///executor",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(streamWindowBytes), grpc.WithInitialConnWindowSize(connectionWindowBytes),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken := ch.takeStream(); taken != nil {
				return taken, nil
			}
			return nil, errEnded // another stream is another channel
		}))
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	conn.Connect()
	return client.NewOwning(conn, conn), nil
}

// takeStream returns the stream to the first caller, and nil to others.
func (ch *channel) takeStream() net.Conn {
	select {
	case stream := <-ch.stream:
		return stream
	default:
		return nil
	}
}

// channelConn is the stream of a channel.
type channelConn struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *channelConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}
