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
	d := &dialer{}
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
	})
	if err != nil {
		return nil, refusedError(response, err)
	}
	d.upgraded.accepted = true
	_ = ws.CloseNow() // closes nothing: the handshake is all that the library does
	stream := d.upgraded.ReadWriteCloser
	return newConn(d.raw, stream, stream, true, response.TLS != nil, d.host, o.withDefaults()).watch(), nil
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

// dialer sends the handshake request, and keeps the connection that the library takes
// over.
type dialer struct {
	transport http.RoundTripper
	raw       net.Conn // last dialed
	host      string   // of the request
	upgraded  *upgradedBody
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tune(tcp, net.KeepAliveConfig{})
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
	d.host, d.upgraded = r.URL.Host, &upgradedBody{ReadWriteCloser: stream}
	response.Body = d.upgraded
	return response, nil
}

// upgradedBody is an upgraded connection. The library reads nothing from it, and
// closes it only if it rejects the response.
type upgradedBody struct {
	io.ReadWriteCloser
	accepted bool
}

// Read implements io.Reader: a rejected response has no body.
func (*upgradedBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	if b.accepted {
		return nil
	}
	return b.ReadWriteCloser.Close()
}
