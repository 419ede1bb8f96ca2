package httpclient

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
)

// Options is what a client is made of.
type Options struct {
	// HeadBytes bounds the heads of one response together, interim ones among
	// them. 0 takes none.
	HeadBytes int
	// PerOwner is how many requests of one owner may be under way at once, up to
	// the close of their responses. 0 lets nobody make one.
	PerOwner int
	// Resolver resolves names. Nil is the one of the system.
	Resolver *net.Resolver
	// Roots are the authorities of servers. Nil are those of the system.
	Roots *x509.CertPool
}

// Client makes requests. All methods may be called concurrently. It has nothing to
// be closed: each response has.
type Client struct {
	options Options
	rules   addressRules

	mu       sync.Mutex
	underWay map[string]int // guarded by mu; by owner
}

// New returns a client.
func New(options Options) *Client {
	return &Client{options: options, underWay: make(map[string]int)}
}

// RefuseLocal has requests to a port of this host be refused, whatever address of
// the host they go to: this server listens there.
func (c *Client) RefuseLocal(port uint16) { c.rules.listenOn(port) }

// Response is what a server elsewhere answered. It has to be closed by its Body.
type Response struct {
	// Status is its code; those of failures are responses, too.
	Status int
	// Headers are those of the response in their order, as many as there were,
	// among them what frames the body.
	Headers []Header
	// URL is where it came from, without user and password: after redirects
	// another than that of the request.
	URL string
	// Body is the body as it was sent: compressed, if it was. Read blocks until
	// some of it has come and returns what there is. Its errors are io.EOF, an
	// [*Error], and that of the context of Do. Close does not block for long, and
	// must not be called while Read is.
	Body io.ReadCloser
}

var errTimedOut = errors.New("the timeout of the request is over")

// Do makes a request and returns when the head of its response has come, which
// may take as long as the timeout. ctx ends the request, and reading the body of
// its response; then the error is that of ctx. All others are an [*Error].
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	m, err := r.message()
	if err != nil {
		return nil, err
	}
	if err := c.enter(r.Owner); err != nil {
		return nil, err
	}
	b := &body{outer: ctx, client: c, owner: r.Owner}
	if r.Timeout != nil {
		b.ctx, b.cancel = context.WithTimeoutCause(ctx, *r.Timeout, errTimedOut)
	} else {
		var cancel context.CancelCauseFunc
		b.ctx, cancel = context.WithCancelCause(ctx)
		b.cancel = func() { cancel(nil) }
	}
	if err := b.follow(m, r.Redirects); err != nil {
		_ = b.Close()
		return nil, err
	}
	response := b.exchange.response
	b.exchange.response = nil // the caller's: a body that takes long need not keep the head
	response.Body = b
	return response, nil
}

// follow makes the request, and those that it is led to.
func (b *body) follow(m *message, redirects Redirects) error {
	for followed := 0; ; followed++ {
		x, err := b.client.exchange(b.ctx, m)
		if err != nil {
			return b.explain(b.client.failure(err, m.to))
		}
		b.exchange, b.to = x, m.to
		if redirects == Stop {
			return nil
		}
		next, err := m.redirected(x.response)
		if err == nil && next != nil && followed == MaxRedirects {
			err = errTooManyRedirects
		}
		if err != nil {
			return b.explain(&Error{Kind: Failed, URL: m.to.told(), Err: err})
		}
		if next == nil {
			return nil
		}
		x.close()
		b.exchange, m = nil, next
	}
}

// body is the body of a response, and what has to end with it.
type body struct {
	outer    context.Context // of the caller
	ctx      context.Context // with the timeout
	cancel   func()
	client   *Client
	owner    string
	to       *target
	exchange *exchange // nil if there is none
	closed   bool
}

// explain is why something failed: because time was over or the caller has gone,
// if so.
func (b *body) explain(err error) error {
	switch {
	case b.outer.Err() != nil:
		return b.outer.Err()
	case b.ctx.Err() != nil:
		timedOut := &Error{Kind: TimedOut}
		if own, ok := errors.AsType[*Error](err); ok {
			timedOut.URL = own.URL
		}
		return timedOut
	}
	return err
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.exchange.body.Read(p)
	if err != nil && err != io.EOF {
		err = b.explain(&Error{Kind: BodyFailed, URL: b.to.told(), Err: err})
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	if b.exchange != nil {
		b.exchange.close()
	}
	b.cancel()
	b.client.leave(b.owner)
	return nil
}

// enter counts a request of an owner, if it may make one.
func (c *Client) enter(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[owner] >= c.options.PerOwner {
		return &Error{Kind: TooManyRequests, Limit: c.options.PerOwner}
	}
	c.underWay[owner]++
	return nil
}

func (c *Client) leave(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[owner]--; c.underWay[owner] == 0 {
		delete(c.underWay, owner)
	}
}
