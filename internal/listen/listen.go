package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// Listener is an open door. Its methods may be called concurrently.
type Listener interface {
	net.Listener
	// URL names the door as a client reaches it, with the port the kernel
	// chose.
	URL() URL
}

// Listen opens the door that u names. It may wait for another server that is
// opening or checking a socket in the same directory, until ctx ends and at
// most for 10 s; the listener itself does not depend on ctx. The error is an *[Error] of kind off,
// in use, in the way or system.
func Listen(ctx context.Context, u URL) (Listener, error) {
	switch u.Scheme {
	case SchemeGRPC:
		return listenTCP(ctx, u)
	case SchemeUnix:
		return listenUnix(ctx, u)
	case SchemeOff:
		return nil, &Error{Kind: KindOff, URL: u.String(), Problem: "there is nothing to listen on"}
	default:
		return nil, malformed(u.String(), fmt.Sprintf("scheme %q is unknown", u.Scheme))
	}
}

type tcpListener struct {
	net.Listener
	url URL
}

func (l *tcpListener) URL() URL { return l.url }

func listenTCP(ctx context.Context, u URL) (Listener, error) {
	if !u.Addr.Addr().IsLoopback() { // a URL that Parse did not make
		return nil, notLoopback(u.String(), u.Addr.Addr().String(), u.Addr.Port())
	}
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", u.Addr.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &Error{
			Kind: KindInUse, URL: u.String(), Problem: fmt.Sprintf("port %d is already in use", u.Addr.Port()),
			Fix: "stop the other server, choose another port, or let the kernel choose one with port 0", Err: syscall.EADDRINUSE,
		}
	}
	if err != nil {
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	bound, err := netip.ParseAddrPort(lis.Addr().String())
	if err != nil {
		_ = lis.Close()
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the bound address cannot be read", Err: err}
	}
	return &tcpListener{Listener: lis, url: URL{Scheme: SchemeGRPC, Addr: bound}}, nil
}
