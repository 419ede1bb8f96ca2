package httpclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/execwire/execwire/internal/destination"
)

// roundTrip is a request with its response, on its own connection.
type roundTrip struct {
	conn    net.Conn // the TCP connection
	stop    func() bool
	stopped chan struct{} // closed after the end of the context has closed conn
	wg      sync.WaitGroup

	response *Response
	body     io.Reader
}

// dial connects to a target. The rules are checked for each address immediately
// before connecting.
func (c *Client) dial(ctx context.Context, to *target) (net.Conn, error) {
	dialer := net.Dialer{
		Resolver: c.options().Resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			addrPort, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return c.options().Rules.Check(addrPort)
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(to.host, to.port))
	if err != nil {
		return nil, err
	}
	if err := c.options().Rules.CheckConnected(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// roundTrip sends a message and reads the head of the response. The result must
// be closed. Its connection does not outlive the context.
func (c *Client) roundTrip(ctx context.Context, m *message) (*roundTrip, error) {
	conn, err := c.dial(ctx, m.to)
	if err != nil {
		return nil, err
	}
	x := &roundTrip{conn: conn, stopped: make(chan struct{})}
	x.stop = context.AfterFunc(ctx, func() {
		defer close(x.stopped)
		_ = conn.Close()
	})
	if err := x.exchange(ctx, m, *c.options()); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// exchange sends the message while it reads the response, since a server may
// respond before it has read everything.
func (x *roundTrip) exchange(ctx context.Context, m *message, options Options) error {
	stream := x.conn
	if m.to.url.Scheme == "https" {
		tlsConn := tls.Client(x.conn, &tls.Config{
			ServerName: m.to.host, RootCAs: options.Roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
		})
		if err := tlsConn.HandshakeContext(ctx); err != nil {
			return err
		}
		stream = tlsConn
	}
	x.wg.Go(func() {
		// If it fails, the response says why, or reading it fails.
		if _, err := stream.Write(m.appendHead(nil)); err == nil {
			_, _ = stream.Write(m.body)
		}
	})
	response, headers, err := readResponse(bufio.NewReader(stream), m.method, options.HeadBytes)
	if err != nil {
		return err
	}
	x.response = &Response{Status: response.StatusCode, Headers: headers, URL: m.to.String()}
	x.body = response.Body
	return nil
}

// close closes the connection and waits for the goroutine.
func (x *roundTrip) close() {
	if !x.stop() {
		<-x.stopped
	}
	_ = x.conn.Close()
	x.wg.Wait()
}

// failure converts an error before the body of a response.
func (c *Client) failure(err error, to *target) error {
	var refused *destination.Refused
	switch {
	case errors.As(err, &refused):
		return &Error{Kind: AddressRefused, Address: refused.Address, URL: to.forError(), Err: errors.New(refused.Reason)}
	case errors.Is(err, errHeadTooLarge):
		return &Error{Kind: HeadTooLarge, URL: to.forError(), Limit: c.options().HeadBytes}
	}
	return &Error{Kind: Failed, URL: to.forError(), Err: err}
}
