package portforward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/tcpconn"
)

// RemoteSpec is one forward of a port of the server: [ADDRESS:]REMOTE:[HOST:]LOCAL.
type RemoteSpec struct {
	// Text is what was given.
	Text string
	// Address is the address to listen on, and Remote the port, of the server; 0 takes a free one.
	Address string
	Remote  uint16
	// Target is the host and port to connect to, in the network of this host.
	Target string
}

// ParseRemote parses an argument of -R. An IPv6 address is in brackets.
func ParseRemote(text string) (s RemoteSpec, err error) {
	s = RemoteSpec{Text: text, Address: "127.0.0.1"}
	host := "127.0.0.1"
	parts := splitColons(text)
	if len(parts) > 2 && !isPort(parts[0]) {
		if s.Address, err = parseListenAddress(parts[0]); err != nil {
			return RemoteSpec{}, remoteError(text, err)
		}
		parts = parts[1:]
	}
	var local uint16
	switch len(parts) {
	case 3:
		host, err = parseHost(parts[1])
		fallthrough
	case 2:
		var remoteErr, localErr error
		if parts[0] != "" {
			s.Remote, remoteErr = parsePort(parts[0])
		}
		local, localErr = parsePort(parts[len(parts)-1])
		if localErr == nil && local == 0 {
			localErr = errors.New("there is no port 0 to connect to")
		}
		err = errors.Join(err, remoteErr, localErr)
	default:
		err = errors.New("it does not name two ports")
	}
	if err != nil {
		return RemoteSpec{}, remoteError(text, err)
	}
	s.Target = net.JoinHostPort(host, strconv.Itoa(int(local)))
	return s, nil
}

func remoteError(text string, err error) error {
	return fmt.Errorf("%q is no remote forward: %w; write for example 8080:3000, :3000, 8080:db.internal:5432 or 0.0.0.0:8080:localhost:3000", text, err)
}

// isPort reports whether a part is a port, or empty for a free one.
func isPort(part string) bool {
	_, err := strconv.ParseUint(part, 10, 64)
	return part == "" || err == nil
}

// splitColons splits at colons outside brackets.
func splitColons(text string) (parts []string) {
	from, inside := 0, false
	for i, c := range text {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ':' && !inside:
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}
	return append(parts, text[from:])
}

// parseListenAddress parses an address of the server, as ssh does: * is all, and localhost is loopback.
func parseListenAddress(text string) (string, error) {
	switch text {
	case "*":
		return "::", nil
	case "localhost":
		return "127.0.0.1", nil
	}
	host, err := parseHost(text)
	if err != nil {
		return "", err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		return "", fmt.Errorf("%q is no address of the server: give an IP address, localhost, or * for all", text)
	}
	return host, nil
}

// RemoteListener is a port of the server whose connections are forwarded to this host.
type RemoteListener struct {
	*client.PortListener
	// Spec is what it forwards to.
	Spec RemoteSpec

	at client.ListenAddress
}

// ListenRemote opens a port of the server. It blocks until it is open.
func (f *Forwarder) ListenRemote(ctx context.Context, spec RemoteSpec) (*RemoteListener, error) {
	r := &RemoteListener{Spec: spec, at: client.ListenAddress{SessionID: f.SessionID, Address: spec.Address, Port: spec.Remote, ListenerID: rand.Text()}}
	return r, r.listen(ctx, f.Client)
}

// listen opens the port, later the same one as at first.
func (r *RemoteListener) listen(ctx context.Context, c *client.Client) (err error) {
	if r.PortListener, err = c.ListenPort(ctx, r.at); err != nil {
		return fmt.Errorf("cannot forward %s: %w", r.Spec.Text, err)
	}
	r.at.Port = uint16(r.Addr().(*net.TCPAddr).Port)
	return nil
}

// dialTimeout is how long connecting to a target of this side may take.
const dialTimeout = 10 * time.Second

// ServeRemote forwards the connections of a remote listener until ctx ends. When the connection to the
// server is lost it reports that, listens again as soon as that is possible, and calls opened. Other failures to
// listen, and that of opened, end it. At the end it closes the listener, resets the connections and waits
// for them.
func (f *Forwarder) ServeRemote(ctx context.Context, r *RemoteListener, opened func(*RemoteListener) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for {
		err := f.acceptRemote(ctx, r, &all)
		if ctx.Err() != nil {
			return nil
		}
		if !isLost(err) {
			return fmt.Errorf("cannot forward %s any more: %w", r.Spec.Text, err)
		}
		f.Report(fmt.Errorf("forwarding %s stops until the server listens again: %w", r.Spec.Text, err))
		if err = f.listenAgain(ctx, r); err == nil {
			err = opened(r)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// isLost reports whether an error means that the server is away.
func isLost(err error) bool {
	if errors.As(err, new(*client.ConnectionLostError)) { // a hub may accept the client again
		return true
	}
	typed, ok := errors.AsType[*client.Error](err)
	return ok && typed.Code == codes.Unavailable
}

// listenAgain opens the port once more.
func (f *Forwarder) listenAgain(ctx context.Context, r *RemoteListener) error {
	var delay backoff.Backoff
	reported := false
	for {
		err := r.listen(ctx, f.Client)
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case isLost(err):
		case errors.Is(err, syscall.EADDRINUSE): // a former server may still have it
			if !reported {
				f.Report(fmt.Errorf("%w; trying again until it is free", err))
				reported = true
			}
		default:
			return err
		}
		if !delay.Wait(ctx, 0) {
			return context.Cause(ctx)
		}
	}
}

// acceptRemote forwards what arrives until accepting fails, and closes the listener.
func (f *Forwarder) acceptRemote(ctx context.Context, r *RemoteListener, all *sync.WaitGroup) error {
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	defer func() { _ = r.Close() }()
	for {
		conn, err := r.Accept()
		if err != nil {
			return err
		}
		all.Go(func() { f.forwardRemote(ctx, r.Spec, conn.(*client.PortConn)) })
	}
}

// forwardRemote forwards one connection that has arrived at the server.
func (f *Forwarder) forwardRemote(ctx context.Context, spec RemoteSpec, remote *client.PortConn) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", spec.Target)
	if err != nil {
		reset(remote)
		if ctx.Err() == nil {
			f.Report(fmt.Errorf("a connection to %s cannot be forwarded: %w", spec.Text, err))
		}
		return
	}
	local := tcpconn.New(conn.(*net.TCPConn))
	defer func() { _ = local.Close() }()
	if err := pass(ctx, local, remote); err != nil && ctx.Err() == nil {
		f.Report(fmt.Errorf("a connection from %s broke: %w", remote.RemoteAddr(), err))
	}
}
