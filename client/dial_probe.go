package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// probeTimeout is how long a server may take to answer a probe.
const probeTimeout = 5 * time.Second

var (
	errNotGRPC  = errors.New("something listens there, but it does not speak gRPC")
	errOnlyTLS  = errors.New("something listens there, but it does not speak gRPC, or only with TLS (grpcs://)")
	errNoGRPC   = errors.New("the executor does not speak gRPC")
	errLostSoon = errors.New("the connection is lost before the server has answered")
)

// isTransient reports whether an attempt to connect that failed with err may succeed
// when it is made again: the connection was lost, or the server did not answer in time.
// All other failures are answers: of the server, or of the operating system that nothing
// listens there.
func isTransient(err error) bool {
	var locked *TLSError
	var unanswered *unansweredError
	if errors.As(err, &locked) && !errors.As(err, &unanswered) {
		return false
	}
	return isLost(err) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// isLost reports whether err says that a connection was lost, and not what the server
// thinks of it.
func isLost(err error) bool {
	for _, lost := range []error{
		errLostSoon, io.EOF, io.ErrUnexpectedEOF,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.EAGAIN,
	} {
		if errors.Is(err, lost) {
			var remote *net.OpError // an alert of TLS says why
			return !(errors.As(err, &remote) && remote.Op == "remote error")
		}
	}
	return false
}

// probe finds out why gRPC could not be spoken over a connection without TLS that was
// made. It makes another, and judges the first frame that the server sends.
func (d *recordingDialer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first, err := d.greet(ctx, d.connect)
	switch {
	case len(first) == frameHeader && (http2.FrameType(first[3]) == http2.FrameSettings || http2.FrameType(first[3]) == http2.FrameGoAway):
		return errLostSoon // it is a server that speaks HTTP/2, and the connection was lost
	case len(first) > 0:
		return d.notGRPC()
	case d.endpoint.network == "tcp" && isTransient(err) && d.speaksTLS(ctx):
		return errOnlyTLS
	case isLost(err):
		return errLostSoon
	case isTransient(err):
		return fmt.Errorf("something listens there, but it does not answer: %w", err)
	}
	return err
}

// frameHeader is how many bytes a frame of HTTP/2 has in front of what is in it.
const frameHeader = 9

// greet makes a connection, sends what gRPC sends first, and returns the first bytes of
// the answer, at most the header of a frame.
func (d *recordingDialer) greet(ctx context.Context, connect func(context.Context) (net.Conn, error)) ([]byte, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is to be said over it
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.WriteString(conn, http2.ClientPreface) // the server may have answered and be gone
	_ = http2.NewFramer(conn, nil).WriteSettings()
	answer := make([]byte, frameHeader)
	n, err := io.ReadFull(conn, answer)
	return answer[:n], err
}

// connectPlain connects without a relay, and without what is above TCP.
func (d *recordingDialer) connectPlain(ctx context.Context) (net.Conn, error) {
	address := d.endpoint.address
	if _, _, err := net.SplitHostPort(address); err != nil { // of a hub
		port := map[bool]string{false: "80", true: "443"}[d.endpoint.tls]
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// speaksPlain reports whether the server, which is to speak TLS, answers what does not.
func (d *recordingDialer) speaksPlain(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	first, _ := d.greet(ctx, d.connectPlain)
	const alert = 21 // the type of the record that ends a handshake
	return len(first) > 0 && first[0] != alert
}

// speaksTLS reports whether the server, which is to speak without, answers the beginning
// of a handshake.
func (d *recordingDialer) speaksTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := d.connectPlain(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing is said over it
	// No certificate is judged, because nothing is sent.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	var remote *net.OpError
	return err == nil || errors.As(err, &remote) && remote.Op == "remote error"
}

// notGRPC says that what answers does not speak gRPC.
func (d *recordingDialer) notGRPC() error {
	switch {
	case d.endpoint.relay != "":
		return errNoGRPC
	case d.endpoint.network == "tcp" && !d.endpoint.tls:
		return errOnlyTLS
	}
	return errNotGRPC
}
