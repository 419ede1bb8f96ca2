package execserver

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/notify"
)

const (
	// connectTimeout limits a connection and its handshake.
	connectTimeout = 10 * time.Second
	// maxCalls limits the requests in progress, below the limit of a gateway.
	maxCalls = 512
)

// Options configure a [Conn].
type Options struct {
	// Open opens a connection to the server, for the first time and whenever the
	// one before was lost; one call at a time. It returns soon after ctx is done.
	// Required.
	Open func(ctx context.Context) (jsonrpc.Transport, error)
	// Once means that a lost connection cannot be made again, for example because it
	// is the stdio of a command.
	Once bool
	// ClientName is for the server's log. Empty is "execwire".
	ClientName string
}

// Conn is a channel to one server. It may be used concurrently. Closing it ends the
// session, and with it all processes that were started over it.
type Conn struct {
	options   Options
	channel   *inproc.Channel     // runs the handlers of the calls
	calls     *semaphore.Weighted // for the calls in progress
	processes processTable

	// ctx ends when the connection is permanently lost, with ErrClosed or a *LostError as
	// its cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	link    *link            // guarded by mu; the last one, which may have ended
	failed  error            // guarded by mu; of the last attempt to replace it
	changed notify.Broadcast // guarded by mu; of link and failed
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial connects and blocks until the server has answered the handshake, the first
// attempt has failed, or ctx is done.
func Dial(ctx context.Context, options Options) (*Conn, error) {
	options.ClientName = cmp.Or(options.ClientName, "execwire")
	c := &Conn{options: options, channel: inproc.New(), calls: semaphore.NewWeighted(maxCalls)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	execwirev1.RegisterProcessServiceServer(c.channel, &processService{conn: c})
	execwirev1.RegisterFileSystemServiceServer(c.channel, &fileService{conn: c})
	execwirev1.RegisterEnvironmentServiceServer(c.channel, &environmentService{conn: c})
	execwirev1.RegisterSessionServiceServer(c.channel, execwirev1.UnimplementedSessionServiceServer{})
	first, err := c.connect(ctx)
	if err != nil {
		c.cancel(ErrClosed)
		c.channel.Close()
		return nil, err
	}
	c.setLink(first, nil)
	c.tasks.Go(func() { c.reconnectLoop(first) })
	return c, nil
}

// Close ends the connection and the session: calls in progress fail with [ErrClosed],
// and the server terminates the processes. It returns when no goroutine of the
// connection is left.
func (c *Conn) Close() error {
	c.cancel(ErrClosed)
	c.channel.Close()
	c.tasks.Wait()
	return nil
}

// setLink records a new link, or why the last attempt to make one failed.
func (c *Conn) setLink(l *link, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != nil {
		c.link = l
	}
	c.failed = failed
	c.changed.Notify()
}

// lastLink returns the link of the last handshake, nil before the first.
func (c *Conn) lastLink() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// current returns the link for a call. After a link is lost it blocks until the first
// attempt to replace it has ended; after a failed attempt it does not wait for the next.
func (c *Conn) current(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, failed, changed := c.link, c.failed, c.changed.Wait()
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return nil, c.goneStatus()
		case l.over.Err() == nil:
			return l, nil
		case failed != nil:
			return nil, lostStatus(failed)
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		}
	}
}

// Websocket close codes. The normal end also ends the session.
const (
	closeNormal    = 1000
	closeGoingAway = 1001
)

// reconnectLoop replaces lost links until the connection ends.
func (c *Conn) reconnectLoop(l *link) {
	for l != nil {
		select {
		case <-l.lost():
		case <-c.ctx.Done():
			l.finish(closeNormal, context.Cause(c.ctx))
			return
		}
		if cause := context.Cause(l.over); c.options.Once || isProtocolError(cause) {
			c.fail(cause) // lose did, unless the link was lost before it was set
		}
		l.finish(closeGoingAway, nil)
		if l = c.reconnect(); l != nil {
			c.setLink(l, nil)
			c.processes.recover(l)
		}
	}
}

// reconnect makes a new link, or returns nil when the connection is permanently lost.
func (c *Conn) reconnect() *link {
	var wait backoff.Backoff
	for c.ctx.Err() == nil {
		l, err := c.connect(c.ctx)
		switch {
		case err == nil:
			return l
		case c.ctx.Err() != nil:
		case isFinal(err):
			c.fail(err)
		default:
			c.setLink(nil, err)
			wait.Wait(c.ctx, 0)
		}
	}
	return nil
}

// lose ends a link because of err, and the connection if it cannot be replaced.
func (c *Conn) lose(l *link, err error) {
	if c.lastLink() == l && (c.options.Once || isProtocolError(err)) {
		c.fail(err) // first, because calls in progress return it
	}
	l.end(err)
}

// fail ends the connection permanently.
func (c *Conn) fail(err error) {
	p := c.lastLink().peer
	c.cancel(&LostError{Peer: p.name, Restarted: isRestarted(p.instance, err), Err: err})
}

// call makes a request over a link and decodes its result into result, a pointer to a
// struct for jsonrpc.DecodeParams; nil drops it. It waits until few enough other calls
// are in progress. It returns at the latest when ctx is done; the server may process the
// request nevertheless. Errors are gRPC statuses.
func (c *Conn) call(ctx context.Context, l *link, method string, params, result any) error {
	if c.calls.Acquire(ctx, 1) != nil {
		return contextStatus(ctx)
	}
	defer c.calls.Release(1)
	return c.control(ctx, l, method, params, result)
}

// control is call without waiting for other calls, for requests that end a process.
func (c *Conn) control(ctx context.Context, l *link, method string, params, result any) error {
	err := l.ask(ctx, method, params, result)
	if answered, ok := err.(*jsonrpc.Error); ok { // not errors.As: the end of a link may wrap one
		return statusOf(method, answered)
	}
	switch {
	case err == nil:
		return nil
	case isProtocolError(err):
		return c.broken(l, err)
	case ctx.Err() != nil:
		return contextStatus(ctx)
	}
	return l.status()
}
