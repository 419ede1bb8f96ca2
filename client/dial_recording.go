package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/sockowner"
	"github.com/execwire/execwire/internal/syserr"
	"github.com/execwire/execwire/relay/harness"

	"golang.org/x/net/http2"
)

// recordingDialer opens the connections of a channel, and records why that failed.
type recordingDialer struct {
	endpoint endpoint
	// loopbackOnly restricts connections to this host, because a token would be sent in
	// plain text.
	loopbackOnly bool
	// relay has the credentials for the rendezvous, if the endpoint is behind one.
	relay harness.Options

	mu  sync.Mutex
	err error // guarded by mu
	// rejected is why further attempts are useless, or nil; guarded by mu.
	rejected error
	// current is the latest connection through a relay; guarded by mu.
	current *harness.Conn
}

func (d *recordingDialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := d.connect(ctx)
	d.setRejected(err)
	if err != nil {
		d.record(err)
	}
	return conn, err
}

func (d *recordingDialer) connect(ctx context.Context) (net.Conn, error) {
	if d.endpoint.relay != "" {
		return d.connectRelay(ctx)
	}
	if d.loopbackOnly {
		if err := requireLoopback(d.endpoint.address); err != nil {
			return nil, err
		}
	}
	conn, err := sockowner.Dialer().DialContext(ctx, d.endpoint.network, d.endpoint.address)
	if err == nil && d.loopbackOnly {
		if err := requireLoopback(conn.RemoteAddr().String()); err != nil {
			_ = conn.Close() // nothing was sent
			return nil, err
		}
	}
	return conn, err
}

// record stores a failure. A later attempt that gets further does not clear it: it may
// begin before lastError is called.
func (d *recordingDialer) record(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// lastError returns why the last attempt failed. It may probe the server.
func (d *recordingDialer) lastError(ctx context.Context) error {
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	switch relay, lost := d.endpoint.relay != "", isLost(err); {
	case relay && lost && !d.endpoint.tls && !d.speaksTLS(ctx):
		return err
	case relay && err != nil:
		return explainHubTLS(err, d.endpoint.tls)
	case d.endpoint.tls && !relay && lost && d.speaksPlain(ctx):
		return &TLSError{Fix: "the server does not use TLS: if it is on this host, dial tcp://", Err: err}
	case err != nil:
		return explainTLS(err, "grpc")
	case d.endpoint.tls && !relay:
		return d.notGRPC() // the end of the connection would have been recorded
	}
	return d.probe(ctx)
}

// probeTimeout is how long a server may take to answer a probe.
const probeTimeout = 5 * time.Second

var (
	errNotGRPC         = errors.New("the server does not speak gRPC")
	errOnlyTLS         = errors.New("the server does not speak gRPC, or only with TLS (tls://)")
	errExecutorNotGRPC = errors.New("the executor does not speak gRPC")
	errLostEarly       = errors.New("the connection is lost before the server has answered")
)

// isTransient reports whether connecting again may succeed after err: the connection
// was lost, or the server did not answer in time. All other failures are definite: an
// answer of the server, or a refused connection.
func isTransient(err error) bool {
	var locked *TLSError
	var unanswered *unansweredError
	if errors.As(err, &locked) && !errors.As(err, &unanswered) {
		return false
	}
	return isLost(err) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// isLost reports whether err means that the connection was lost, and not that the
// server rejected it.
func isLost(err error) bool {
	if !slices.ContainsFunc([]error{errLostEarly, io.EOF, io.ErrUnexpectedEOF}, func(lost error) bool { return errors.Is(err, lost) }) && !syserr.IsLost(err) {
		return false
	}
	var remote *net.OpError // a TLS alert has the reason
	return !(errors.As(err, &remote) && remote.Op == "remote error")
}

// probe finds out why gRPC failed over a connection without TLS. It connects again and
// examines the first frame of the server.
func (d *recordingDialer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first, err := d.sendPreface(ctx, d.connect)
	switch {
	case len(first) == frameHeader && (http2.FrameType(first[3]) == http2.FrameSettings || http2.FrameType(first[3]) == http2.FrameGoAway):
		return errLostEarly // the server speaks HTTP/2; the connection was lost
	case len(first) > 0:
		return d.notGRPC()
	case d.endpoint.network == "tcp" && isTransient(err) && d.speaksTLS(ctx):
		return errOnlyTLS
	case isLost(err):
		return errLostEarly
	case isTransient(err):
		return fmt.Errorf("the server does not answer: %w", err)
	}
	return err
}

// frameHeader is the size of an HTTP/2 frame header.
const frameHeader = 9

// sendPreface connects, sends the HTTP/2 client preface, and returns the first bytes of
// the answer, at most a frame header.
func (d *recordingDialer) sendPreface(ctx context.Context, connect func(context.Context) (net.Conn, error)) ([]byte, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing more is sent
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.WriteString(conn, http2.ClientPreface) // the server may have answered and closed
	_ = http2.NewFramer(conn, nil).WriteSettings()
	answer := make([]byte, frameHeader)
	n, err := io.ReadFull(conn, answer)
	return answer[:n], err
}

// connectPlain connects without relay and TLS.
func (d *recordingDialer) connectPlain(ctx context.Context) (net.Conn, error) {
	address := d.endpoint.address
	if _, _, err := net.SplitHostPort(address); err != nil { // the address of a hub
		port := map[bool]string{false: "80", true: "443"}[d.endpoint.tls]
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return sockowner.Dialer().DialContext(ctx, "tcp", address)
}

// speaksPlain reports whether a server that should use TLS answers without it.
func (d *recordingDialer) speaksPlain(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first, _ := d.sendPreface(ctx, d.connectPlain)
	const alert = 21 // TLS record type alert
	return len(first) > 0 && first[0] != alert
}

// speaksTLS reports whether a server that should not use TLS answers a TLS handshake.
func (d *recordingDialer) speaksTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := d.connectPlain(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing is sent
	// The certificate is not verified, because no data is sent.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	var remote *net.OpError
	return err == nil || errors.As(err, &remote) && remote.Op == "remote error"
}

// notGRPC returns the error for a server that answers but does not speak gRPC.
func (d *recordingDialer) notGRPC() error {
	switch {
	case d.endpoint.relay != "":
		return errExecutorNotGRPC
	case d.endpoint.network == "tcp" && !d.endpoint.tls:
		return errOnlyTLS
	}
	return errNotGRPC
}
