// Package channels has the gRPC connections of a hub to its executors: those by which the hub
// itself calls an executor, for a preview or for the console.
package channels

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/execwire/execwire/client"
)

const (
	// openTimeout bounds how long an executor may take to answer.
	openTimeout = 15 * time.Second
	// idleTimeout is how long a channel without users is kept: once to twice this time.
	idleTimeout = 30 * time.Second
	// streamWindowBytes bounds what waits in the hub of one call that its client does not
	// read; connectionWindowBytes does not make others wait, because gRPC receives for all of
	// them.
	streamWindowBytes     = 256 << 10
	connectionWindowBytes = 4 << 20
	// messageBytes is the largest message of an executor.
	messageBytes = 16 << 20
)

var (
	errNoAnswer = fmt.Errorf("the executor did not answer within %v: %w", openTimeout, context.DeadlineExceeded)
	errEnded    = errors.New("the stream to the executor has ended")
	errClosing  = errors.New("the hub is shutting down")
)

// ErrClosed is the error of [Pool.Acquire] after Close.
var ErrClosed = errors.New("the channels are closed")

// Open opens a stream to an executor for a principal, who may connect to it.
type Open func(ctx context.Context, principal, executor string) (net.Conn, error)

// Pool has a channel for each executor and principal that needs one: principals do not share
// one, so that its stream counts for the principal that uses it. It may be used concurrently,
// and must be closed.
type Pool struct {
	open    Open
	closing context.Context // done when the pool is closing
	stop    context.CancelCauseFunc
	serving sync.WaitGroup // channels; added to with mu held and not closed

	mu       sync.Mutex
	closed   bool             // guarded by mu
	channels map[key]*channel // guarded by mu
}

// New returns a pool without channels.
func New(open Open) *Pool {
	p := &Pool{open: open, channels: make(map[key]*channel)}
	p.closing, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Close ends all channels, and their calls, and returns when their streams are closed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop(errClosing)
	p.serving.Wait()
}

// key identifies a channel.
type key struct{ executor, principal string }

// channel is a gRPC connection to an executor, over one stream of the relay. Its goroutine
// opens and closes it.
type channel struct {
	opened chan struct{}  // closed when client or err is set
	client *client.Client // nil if err is set
	err    error
	stream chan net.Conn // has the stream until gRPC takes it
	ended  chan struct{} // closed when gRPC has closed its stream

	users    int       // guarded by Pool.mu
	lastUsed time.Time // guarded by Pool.mu
}

// Channel is the use of a channel until Release. Its methods may be called concurrently.
type Channel struct {
	pool    *Pool
	key     key
	channel *channel
	release func()
}

// Client makes calls at the executor.
func (c *Channel) Client() *client.Client { return c.channel.client }

// Release ends the use. Further calls do nothing.
func (c *Channel) Release() { c.release() }

// Forget makes the next [Pool.Acquire] open another channel: this one was lost.
func (c *Channel) Forget() { c.pool.forget(c.key, c.channel) }

// Acquire returns the channel of a principal to an executor, and opens it if there is none. It
// waits for that until ctx ends. The error is [ErrClosed], the cause of ctx, or one of opening
// the stream.
func (p *Pool) Acquire(ctx context.Context, principal, executor string) (*Channel, error) {
	k := key{executor: executor, principal: principal}
	ch, err := p.use(k)
	if err != nil {
		return nil, err
	}
	c := &Channel{pool: p, key: k, channel: ch, release: sync.OnceFunc(func() { p.unuse(ch) })}
	select {
	case <-ch.opened:
		err = ch.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// use returns the channel of a key, which may not be open yet.
func (p *Pool) use(k key) (*channel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	ch := p.channels[k]
	if ch == nil {
		ch = &channel{opened: make(chan struct{}), stream: make(chan net.Conn, 1), ended: make(chan struct{})}
		p.channels[k] = ch
		p.serving.Go(func() { p.run(k, ch) })
	}
	ch.users++
	return ch, nil
}

// unuse undoes use.
func (p *Pool) unuse(ch *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch.users--
	ch.lastUsed = time.Now()
}

// forget removes a channel, so that the next user opens another one.
func (p *Pool) forget(k key, ch *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.channels[k] == ch {
		delete(p.channels, k)
	}
}

// isIdle reports whether a channel has been without users, and then removes it.
func (p *Pool) isIdle(k key, ch *channel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch.users > 0 || time.Since(ch.lastUsed) < idleTimeout {
		return false
	}
	if p.channels[k] == ch {
		delete(p.channels, k)
	}
	return true
}

// run opens a channel and closes it when its stream has ended, it is idle, or the pool closes.
func (p *Pool) run(k key, ch *channel) {
	defer p.forget(k, ch)
	ch.client, ch.err = p.openChannel(k, ch)
	if ch.err != nil {
		p.forget(k, ch) // before others find it
		close(ch.opened)
		return
	}
	close(ch.opened)
	defer func() {
		_ = ch.client.Close() // ends its calls
		if stream := ch.takeStream(); stream != nil {
			_ = stream.Close()
		}
	}()
	idle := time.NewTicker(idleTimeout)
	defer idle.Stop()
	for {
		select {
		case <-ch.ended:
			return
		case <-p.closing.Done():
			return
		case <-idle.C:
			if p.isIdle(k, ch) {
				return
			}
		}
	}
}

// openChannel opens the stream of a channel. It does not depend on the user that needs it
// first.
func (p *Pool) openChannel(k key, ch *channel) (*client.Client, error) {
	ctx, cancel := context.WithTimeoutCause(p.closing, openTimeout, errNoAnswer)
	defer cancel()
	stream, err := p.open(ctx, k.principal, k.executor)
	if err != nil {
		return nil, err
	}
	ch.stream <- &channelConn{Conn: stream, end: sync.OnceFunc(func() { close(ch.ended) })}
	conn, err := grpc.NewClient("passthrough:///executor",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes)),
		grpc.WithInitialWindowSize(streamWindowBytes), grpc.WithInitialConnWindowSize(connectionWindowBytes),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken := ch.takeStream(); taken != nil {
				return taken, nil
			}
			p.forget(k, ch) // another stream is another channel
			return nil, errEnded
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
