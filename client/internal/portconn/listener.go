package portconn

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Arrivals is the caller's side of ListenPort.
type Arrivals = grpc.ServerStreamingClient[execwirev1.ListenPortResponse]

// Listener is a port of the server as a net.Listener. All methods may be called concurrently.
type Listener struct {
	ctx      context.Context // of arrivals
	cancel   context.CancelCauseFunc
	arrivals Arrivals
	explain  func(error) error
	addr     net.Addr
	open     func(ctx context.Context, connectionID string, local, remote net.Addr) (*Conn, error)

	accepting sync.Mutex // held during Accept
	failure   error      // guarded by accepting; of arrivals
}

// errListenerBroken is the error of a server that breaks the contract.
var errListenerBroken = errors.New("the server broke the contract: the stream of a listener ended, or has an invalid address")

// NewListener receives the first answer of a stream, and returns the listener, which must be closed. ctx
// is that of the stream, and cancel ends it; explain translates its errors. open accepts a connection; its
// context ends with the listener.
func NewListener(ctx context.Context, cancel context.CancelCauseFunc, arrivals Arrivals, explain func(error) error,
	open func(ctx context.Context, connectionID string, local, remote net.Addr) (*Conn, error)) (*Listener, error) {
	l := &Listener{ctx: ctx, cancel: cancel, arrivals: arrivals, explain: explain, open: open}
	first, err := l.receive()
	if err != nil {
		return nil, err
	}
	l.addr, err = ParseAddr(first.GetListening().GetAddress())
	return l, err
}

func (l *Listener) receive() (*execwirev1.ListenPortResponse, error) {
	m, err := l.arrivals.Recv()
	if errors.Is(err, io.EOF) {
		return nil, errListenerBroken
	}
	return m, l.explain(err)
}

// ParseAddr parses an address and port from the server.
func ParseAddr(text string) (net.Addr, error) {
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, errListenerBroken
	}
	return net.TCPAddrFromAddrPort(addr), nil
}

// Accept implements net.Listener. It blocks until a connection arrives. It does not wait until the
// server has passed it on: that this fails is an error of Read and Write.
func (l *Listener) Accept() (net.Conn, error) {
	l.accepting.Lock()
	defer l.accepting.Unlock()
	conn, err := l.accept()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (l *Listener) accept() (*Conn, error) {
	if l.failure != nil {
		return nil, l.failure
	}
	m, err := l.receive()
	var remote net.Addr
	if err == nil {
		remote, err = ParseAddr(m.GetArrival().GetPeerAddress())
	}
	if err != nil {
		if errors.Is(context.Cause(l.ctx), net.ErrClosed) {
			err = net.ErrClosed
		}
		l.failure = err
		return nil, err
	}
	return l.open(l.ctx, m.GetArrival().GetConnectionId(), l.addr, remote)
}

// Close implements net.Listener: it ends Accept with net.ErrClosed. Accepted connections continue.
// It does not wait until the server has closed the port.
func (l *Listener) Close() error {
	l.cancel(net.ErrClosed)
	return nil
}

// Addr implements net.Listener. It is an address of the server.
func (l *Listener) Addr() net.Addr { return l.addr }
