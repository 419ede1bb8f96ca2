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

// DialOptions are those of a connection that this end opens.
type DialOptions struct {
	Options
	// Header is sent with the request. May be nil.
	Header http.Header
	// TLS is for wss URLs; nil is the default of crypto/tls. It is cloned.
	TLS *tls.Config
	// Tuning finds out that the peer is gone.
	Tuning Tuning
}

// RefusedError is a server that answered, but did not make a websocket of the
// connection.
type RefusedError struct {
	Status int    // the HTTP status
	Text   string // the beginning of the body
	Err    error  // what the library says
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns what the library says.
func (e *RefusedError) Unwrap() error { return e.Err }

// Dial opens a websocket to a ws or wss URL, through the proxy that the
// environment names if it names one. ctx bounds the opening only. The error is a
// [*RefusedError] if a server answered something else than a websocket.
func Dial(ctx context.Context, url string, o DialOptions) (*Conn, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &dialer{options: options, tuning: o.Tuning}
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
		OnPingReceived:  func(_ context.Context, payload []byte) bool { return d.conn.pinged(payload) },
		OnPongReceived:  func(_ context.Context, payload []byte) { d.conn.prover.pong(payload) },
	})
	if err != nil {
		return nil, refusal(response, err)
	}
	return d.conn.begin(ws), nil
}

// noRedirect makes a redirect the answer: a websocket's credentials are for the
// server that was named.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refusal returns err, with the answer if there was one.
func refusal(response *http.Response, err error) error {
	if response == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return err
	}
	text, _ := io.ReadAll(response.Body) // the library kept its first KiB
	return &RefusedError{Status: response.StatusCode, Text: string(text), Err: err}
}

// dialer makes the request of a websocket and gives the library our wire in
// place of the connection.
type dialer struct {
	options   Options
	tuning    Tuning
	transport http.RoundTripper
	raw       net.Conn // what was dialed last
	conn      *Conn    // once the server has agreed
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tune(tcp, d.tuning.config())
	}
	d.raw = conn
	return newAskingConn(conn), nil
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
