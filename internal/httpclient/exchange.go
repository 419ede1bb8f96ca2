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
)

// exchange is one request with its response, on a connection of its own.
type exchange struct {
	conn    net.Conn // of TCP
	stop    func() bool
	stopped chan struct{} // closed when the end of the context has closed conn
	writing sync.WaitGroup

	response *Response
	body     io.Reader
}

// dial connects to a target. The rules are applied to each address right before
// it is connected to.
func (c *Client) dial(ctx context.Context, to *target) (net.Conn, error) {
	dialer := net.Dialer{
		Resolver: c.options.Resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			addrPort, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return c.rules.check(addrPort)
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(to.host, to.port))
	if err != nil {
		return nil, err
	}
	if err := c.rules.checkConnected(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// exchange sends a message and reads the head of the response. It is to be
// closed. Its connection does not outlive the context.
func (c *Client) exchange(ctx context.Context, m *message) (*exchange, error) {
	conn, err := c.dial(ctx, m.to)
	if err != nil {
		return nil, err
	}
	x := &exchange{conn: conn, stopped: make(chan struct{})}
	x.stop = context.AfterFunc(ctx, func() {
		defer close(x.stopped)
		_ = conn.Close()
	})
	if err := x.talk(ctx, m, c.options); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// talk sends the message while it reads the response, which may come before the
// server has read all of it.
func (x *exchange) talk(ctx context.Context, m *message, options Options) error {
	talked := x.conn
	if m.to.url.Scheme == "https" {
		secured := tls.Client(x.conn, &tls.Config{
			ServerName: m.to.host, RootCAs: options.Roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
		})
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		talked = secured
	}
	x.writing.Go(func() {
		// Should it fail, the response says why, or does not come.
		if _, err := talked.Write(m.appendHead(nil)); err == nil {
			_, _ = talked.Write(m.body)
		}
	})
	response, headers, err := readResponse(bufio.NewReader(talked), m.method, options.HeadBytes)
	if err != nil {
		return err
	}
	x.response = &Response{Status: response.StatusCode, Headers: headers, URL: m.to.String()}
	x.body = response.Body
	return nil
}

// close ends the exchange, and returns when nothing of it is left.
func (x *exchange) close() {
	if !x.stop() {
		<-x.stopped
	}
	_ = x.conn.Close()
	x.writing.Wait()
}

// failure is what a caller is told of an error before the body of a response.
func (c *Client) failure(err error, to *target) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		own.URL = to.told()
		return own
	case errors.Is(err, errHeadTooLarge):
		return &Error{Kind: HeadTooLarge, URL: to.told(), Limit: c.options.HeadBytes}
	}
	return &Error{Kind: Failed, URL: to.told(), Err: err}
}
