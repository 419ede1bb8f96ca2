package httpclient

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/execwire/execwire/internal/destination"
	"github.com/execwire/execwire/internal/quota"
)

// Options configure a client.
type Options struct {
	// HeadBytes bounds the heads of a response in total, including interim ones.
	// 0 allows none.
	HeadBytes int
	// PerOwner bounds the concurrent requests of one owner, until their responses
	// are closed. 0 allows none.
	PerOwner int
	// Rules decide which addresses are connected to. Nil means the general rules.
	Rules *destination.Rules
	// Resolver resolves names. Nil means the system's.
	Resolver *net.Resolver
	// Roots are the accepted certificate authorities. Nil means the system's.
	Roots *x509.CertPool
}

// Client sends requests. All methods may be called concurrently. It need not be
// closed, but each response must be.
type Client struct {
	current atomic.Pointer[Options]
	active  quota.Counter // requests in progress
}

// New returns a client.
func New(options Options) *Client {
	c := &Client{}
	c.SetOptions(options)
	return c
}

// SetOptions changes the options for later requests. Requests in progress continue.
func (c *Client) SetOptions(options Options) {
	options.Rules = cmp.Or(options.Rules, new(destination.Rules))
	c.current.Store(&options)
	c.active.SetMost(options.PerOwner)
}

func (c *Client) options() *Options { return c.current.Load() }

// Response is a response. Its Body must be closed.
type Response struct {
	// Status is the status code. Error statuses are responses, too.
	Status int
	// Headers are all headers of the response, in order, including those that
	// frame the body.
	Headers []Header
	// URL is the URL of the response after redirects, without user and password.
	URL string
	// Body is the body as sent, possibly compressed. Read blocks until data
	// arrives and returns what is available. Its errors are io.EOF, an [*Error],
	// and that of Do's context. Close does not block for long, and must not be
	// called during Read.
	Body io.ReadCloser
}

var errTimedOut = errors.New("the request timed out")

// Do sends a request and returns when the head of the response has arrived. ctx
// also ends reading the body; then the error is that of ctx. All other errors are
// an [*Error].
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	m, err := r.message()
	if err != nil {
		return nil, err
	}
	if !c.active.Acquire(r.Owner) {
		return nil, &Error{Kind: TooManyRequests, Limit: c.options().PerOwner}
	}
	b := &body{callerCtx: ctx, client: c, owner: r.Owner}
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
	response := b.roundTrip.response
	b.roundTrip.response = nil // owned by the caller, so that a long body does not retain the head
	response.Body = b
	return response, nil
}

// follow sends the request and follows redirects.
func (b *body) follow(m *message, redirects Redirects) error {
	for followed := 0; ; followed++ {
		x, err := b.client.roundTrip(b.ctx, m)
		if err != nil {
			return b.explain(b.client.failure(err, m.to))
		}
		b.roundTrip, b.to = x, m.to
		if redirects == Stop {
			return nil
		}
		next, err := m.redirect(x.response)
		if err == nil && next != nil && followed == MaxRedirects {
			err = errTooManyRedirects
		}
		if err != nil {
			return b.explain(&Error{Kind: Failed, URL: m.to.forError(), Err: err})
		}
		if next == nil {
			return nil
		}
		x.close()
		b.roundTrip, m = nil, next
	}
}

// body is a response body, with what must end with it.
type body struct {
	callerCtx context.Context // of the caller
	ctx       context.Context // with the timeout
	cancel    func()
	client    *Client
	owner     string
	to        *target
	roundTrip *roundTrip // nil if there is none
	closed    bool
}

// explain replaces an error by the end of the caller's context or the timeout, if
// that is its reason.
func (b *body) explain(err error) error {
	switch {
	case b.callerCtx.Err() != nil:
		return b.callerCtx.Err()
	case b.ctx.Err() != nil:
		timedOut := &Error{Kind: TimedOut}
		if typed, ok := errors.AsType[*Error](err); ok {
			timedOut.URL = typed.URL
		}
		return timedOut
	}
	return err
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.roundTrip.body.Read(p)
	if err != nil && err != io.EOF {
		err = b.explain(&Error{Kind: BodyFailed, URL: b.to.forError(), Err: err})
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	if b.roundTrip != nil {
		b.roundTrip.close()
	}
	b.cancel()
	b.client.active.Release(b.owner)
	return nil
}
