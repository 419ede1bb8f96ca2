package wsconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// DialOptions configure a client connection.
type DialOptions struct {
	Options
	// Header is sent with the request. May be nil.
	Header http.Header
	// TLS is for wss URLs; nil means the defaults of crypto/tls. It is cloned.
	TLS *tls.Config
}

// RefusedError means that the server responded without upgrading the connection.
type RefusedError struct {
	Status int    // HTTP status
	Text   string // the beginning of the body
	Err    error  // the error of the library
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the library.
func (e *RefusedError) Unwrap() error { return e.Err }

// Dial opens a websocket to a ws or wss URL, through the proxy that the
// environment names, if any. ctx bounds only the opening. The error is a
// [*RefusedError] if the server responded without upgrading.
func Dial(ctx context.Context, url string, o DialOptions) (*Conn, error) {
	d := &dialer{options: o.withDefaults()}
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       d.dial,
		TLSClientConfig:   o.TLS.Clone(),
		DisableKeepAlives: true,
	}
	d.transport = transport
	defer transport.CloseIdleConnections()
	ws, response, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: d, CheckRedirect: noRedirect},
		HTTPHeader:      o.Header,
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  func(_ context.Context, payload []byte) bool { return d.conn.onPing(payload) },
		OnPongReceived:  func(_ context.Context, payload []byte) { d.conn.pings.pong(payload) },
	})
	if err != nil {
		return nil, refusedError(response, err)
	}
	return d.conn.start(ws), nil
}

// noRedirect rejects redirects: the credentials are for the named server only.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refusedError adds the response to err, if there was one.
func refusedError(response *http.Response, err error) error {
	if response == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return err
	}
	text, _ := io.ReadAll(response.Body) // the library has read its first KiB
	return &RefusedError{Status: response.StatusCode, Text: string(text), Err: err}
}

// dialer sends the handshake request, and gives the library a wire instead of the
// connection.
type dialer struct {
	options   Options
	transport http.RoundTripper
	raw       net.Conn // last dialed
	conn      *Conn    // set after the upgrade
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tune(tcp, Tuning{}.config())
	}
	d.raw = conn
	return newDelayedReader(conn), nil
}

var errNotWritable = errors.New("the connection cannot be taken over from the HTTP client")

// RoundTrip implements http.RoundTripper.
func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.transport.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		return response, err
	}
	stream, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		return nil, errors.Join(errNotWritable, response.Body.Close())
	}
	w := newWire(d.raw, stream, stream, true, d.options)
	d.conn = newConn(w, r.URL.Host, d.options)
	response.Body = w
	return response, nil
}
