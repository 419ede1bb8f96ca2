package execserver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/inproc"
)

const (
	// DefaultTimeout is how long a connection and its handshake may take.
	DefaultTimeout = 10 * time.Second
	// DefaultClientName is what the server is told of who connects.
	DefaultClientName = "execwire"
)

// Options say what a [Conn] connects to.
type Options struct {
	// Open opens a connection to the server, for the first time and whenever the
	// one before was lost; one call at a time. It returns soon after ctx is done.
	// Required.
	Open func(ctx context.Context) (jsonrpc.Transport, error)
	// Once says that a connection that is lost cannot be made again, as that to a
	// command that was started for it.
	Once bool
	// ClientName is for the server's log. Empty is DefaultClientName.
	ClientName string
	// Paths is how the server wants paths written. The zero value finds out.
	Paths PathForm
	// QueueBytes is how much of a process may wait in this program for each of its
	// readers, where the server does not bound it. Beyond it nothing more is received
	// if the reader paces the process and nothing else uses the connection; else the
	// reader goes on with what the server has kept. 0 is DefaultQueueBytes.
	QueueBytes int
	// Timeout bounds each connection and its handshake. 0 is DefaultTimeout.
	Timeout time.Duration
}

// Conn is a channel to one server. It may be used concurrently. Closing it ends the
// session, and with it all processes that were started over it.
type Conn struct {
	options Options
	channel *inproc.Channel // on which the calls are carried out
	places  chan struct{}   // of ordinary requests
	spare   chan struct{}   // of requests that end something

	processes processTable
	pacing    atomic.Int32  // how many feeds pace their processes
	busy      chan struct{} // has a token when a paused link may have to go on

	// ctx ends when the connection is gone for good, with the reason as its cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
	closed sync.Once

	mu       sync.Mutex
	link     *link                            // guarded by mu; nil while there is none
	changed  chan struct{}                    // guarded by mu; closed when link or failed change
	failed   error                            // guarded by mu; why the last attempt to connect failed
	peer     peer                             // guarded by mu; of the last handshake
	session  string                           // guarded by mu
	handlers map[string]map[*handler]struct{} // guarded by mu; by method
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Limits of requests under way, which are below those of a gateway.
const (
	maxCalls      = 512
	maxSpareCalls = 32
)

// Dial connects and blocks until the server has answered the handshake, the first
// attempt has failed, or ctx is done.
func Dial(ctx context.Context, options Options) (*Conn, error) {
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.QueueBytes <= 0 {
		options.QueueBytes = DefaultQueueBytes
	}
	if options.ClientName == "" {
		options.ClientName = DefaultClientName
	}
	c := &Conn{
		options: options,
		places:  make(chan struct{}, maxCalls), spare: make(chan struct{}, maxSpareCalls),
		busy:    make(chan struct{}, 1),
		changed: make(chan struct{}), handlers: make(map[string]map[*handler]struct{}),
	}
	c.channel = inproc.New(inproc.WithUnaryInterceptors(c.interceptCall), inproc.WithStreamInterceptors(c.interceptStream))
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.processes.conn = c
	c.register()
	c.listen()
	first, err := c.connect(ctx)
	if err != nil {
		c.cancel(ErrClosed)
		c.channel.Close()
		return nil, err
	}
	c.use(first)
	c.tasks.Go(func() { c.keep(first) })
	return c, nil
}

// Close ends the connection and the session: what is under way fails with
// [ErrClosed], and processes are terminated by the server. It returns when no
// goroutine of the connection is left.
func (c *Conn) Close() error {
	c.closed.Do(func() { c.cancel(ErrClosed) })
	c.channel.Close()
	c.tasks.Wait()
	return nil
}

// Done is closed when the connection is gone for good: it was closed, the server
// does not know its session any more, or the command it was made to has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err is nil while Done is open, and then [ErrClosed] or a [*LostError].
func (c *Conn) Err() error { return context.Cause(c.ctx) }

// use makes l what calls are made over; nil is none.
func (c *Conn) use(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	if l != nil {
		c.peer, c.session, c.failed = l.peer, l.session, nil
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// attemptFailed notes why there is still no link.
func (c *Conn) attemptFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	close(c.changed)
	c.changed = make(chan struct{})
}

// current returns the link to make a call over. From the moment a link is lost until
// the first attempt to replace it has ended it blocks; after a failed attempt it does
// not wait for the next.
func (c *Conn) current(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, failed, changed := c.link, c.failed, c.changed
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return nil, c.goneStatus()
		case l != nil && l.over.Err() == nil:
			return l, nil
		case l == nil && failed != nil:
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

// sessionID is the session of the connection.
func (c *Conn) sessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// features are those of the server, as it said in the last handshake.
func (c *Conn) features() peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}
