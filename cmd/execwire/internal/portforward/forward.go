package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/tcpconn"
)

// Forwarder forwards connections through a client.
type Forwarder struct {
	// Client connects to ports, and listens on them.
	Client *client.Client
	// SessionID is the session whose processes listen, and to which ports of the server belong.
	SessionID string
	// Report reports the error of one connection. It is called concurrently.
	Report func(error)
}

// acceptPause is the time after a failure to accept, for example for lack of descriptors.
const acceptPause = 100 * time.Millisecond

// Listener accepts connections that are forwarded to one target, or, with Socks, to the target that
// each client names.
type Listener struct {
	*net.TCPListener
	// Spec is what it forwards to. With Socks only its local port matters.
	Spec Spec
	// Socks makes it a SOCKS5 proxy.
	Socks bool
}

// Listen opens a listener at an address of this host.
func Listen(address string, spec Spec) (*Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(spec.Local))))
	if err != nil {
		return nil, err
	}
	return &Listener{TCPListener: l.(*net.TCPListener), Spec: spec}, nil
}

// Serve forwards the connections of all listeners until ctx ends. Then it closes the listeners, resets
// the connections and waits for them. A connection that fails ends nothing else.
func (f *Forwarder) Serve(ctx context.Context, listeners []*Listener) {
	var all sync.WaitGroup
	for _, l := range listeners {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		all.Go(func() {
			defer stop()
			for {
				conn, err := l.AcceptTCP()
				switch {
				case err == nil:
					all.Go(func() { f.forward(ctx, l, tcpconn.New(conn)) })
				case ctx.Err() != nil:
					return
				default:
					f.Report(fmt.Errorf("cannot accept connections: %w", err))
					backoff.Pause(ctx, acceptPause)
				}
			}
		})
	}
	all.Wait()
}

// forward forwards one connection.
func (f *Forwarder) forward(ctx context.Context, l *Listener, local *tcpconn.Conn) {
	stop := context.AfterFunc(ctx, func() { reset(local) })
	defer stop()
	defer func() { _ = local.Close() }()
	host, port := l.Spec.Host, l.Spec.Remote
	if l.Socks {
		var err error
		if host, port, err = acceptSocks(local); err != nil {
			f.Report(err)
			return
		}
	}
	remote, err := f.Client.DialPort(ctx, client.PortAddress{SessionID: f.SessionID, Host: host, Port: port})
	if l.Socks && answerSocks(local, err) != nil && err == nil {
		reset(remote)
		return
	}
	if err != nil {
		if !l.Socks {
			reset(local)
		}
		if ctx.Err() == nil {
			f.Report(err)
		}
		return
	}
	if err := pass(ctx, local, remote); err != nil && ctx.Err() == nil {
		f.Report(fmt.Errorf("a connection to %s broke: %w", Spec{Host: host, Remote: port}.Target(), err))
	}
}

// conn is either end of a forwarded connection.
type conn interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

// reset closes a connection so that its peer gets an error instead of an end.
func reset(c conn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// pass passes bytes until both directions have ended in order. If one fails, or ctx ends, it resets both
// connections, as the end of this program does. It returns the error of the remote end; a local peer may
// break its connection off.
func pass(ctx context.Context, local *tcpconn.Conn, remote *client.PortConn) error {
	_ = local.SetLinger(0)
	resetBoth := func() {
		reset(local)
		reset(remote)
	}
	stop := context.AfterFunc(ctx, resetBoth)
	defer stop()
	failed := make(chan error, 2)
	copyTo := func(to, from conn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		failed <- err
		if err != nil {
			resetBoth()
		}
	}
	var both sync.WaitGroup
	both.Go(func() { copyTo(remote, local) })
	both.Go(func() { copyTo(local, remote) })
	both.Wait()
	_ = remote.Close()
	err := <-failed // the first; another is its consequence
	if err == nil {
		err = <-failed
	}
	if err == nil {
		_ = local.SetLinger(-1)
	}
	if errors.As(err, new(*net.OpError)) { // of the local end
		return nil
	}
	return err
}
