package ports

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/destination"
	"github.com/execwire/execwire/internal/quota"
	"github.com/execwire/execwire/internal/sockdiag"
	"github.com/execwire/execwire/internal/tcpconn"
)

// Options configure a [Network].
type Options struct {
	// Allowed is what may be connected to.
	Allowed Allowed
	// Rules refuse addresses in any case, among them the server's own listeners. Required.
	Rules *destination.Rules
	// PerOwner bounds the open connections of one owner, in both directions. 0 allows none.
	PerOwner int
	// Timeout bounds the time to resolve a name and to connect. 0 fails at once.
	Timeout time.Duration
	// Resolver resolves names. Nil means the system's.
	Resolver *net.Resolver
	// Listen is where callers may listen. The zero value is nowhere.
	Listen ListenOptions
}

// Network connects to ports and listens on them, within the limits of each owner. All methods may be called
// concurrently.
type Network struct {
	current     atomic.Pointer[Options]
	connections quota.Counter // those being established, and those that wait to be accepted, included
	listeners   quota.Counter
}

// NewNetwork returns a network. It need not be closed, but each connection and listener must be.
func NewNetwork(options Options) *Network {
	n := &Network{}
	n.SetOptions(options)
	return n
}

// SetOptions changes the options for later connections and listeners. Open ones stay.
func (n *Network) SetOptions(options Options) {
	n.current.Store(&options)
	n.connections.SetMost(options.PerOwner)
	n.listeners.SetMost(options.Listen.PerOwner)
}

func (n *Network) options() *Options { return n.current.Load() }

// Target says what to connect to, and for whom.
type Target struct {
	// Owner is who connects.
	Owner string
	// Processes are those whose ports the owner may always connect to, if the options allow it.
	Processes Processes
	// Host is a name or an address. Empty: 127.0.0.1, or if that refuses, ::1.
	Host string
	// Port is the port.
	Port uint16
}

func (t *Target) String() string {
	return net.JoinHostPort(cmp.Or(t.Host, "127.0.0.1"), strconv.Itoa(int(t.Port)))
}

// Dial connects, and blocks until the connection is established. It tries the addresses of a host
// one after another. Errors are an [*Error], that of t.Processes, or the cause of ctx, which only
// ends the dialing.
func (n *Network) Dial(ctx context.Context, t Target) (*Conn, error) {
	if !n.connections.Acquire(t.Owner) {
		return nil, &Error{Kind: TooManyConnections, Limit: n.options().PerOwner}
	}
	dialing, cancel := context.WithTimeoutCause(ctx, n.options().Timeout, context.DeadlineExceeded)
	defer cancel()
	conn, err := n.dial(dialing, &t)
	if err != nil {
		n.connections.Release(t.Owner)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return n.newConn(conn, t.String(), t.Owner), nil
}

// resetOnClose has the system reset a connection when it is closed, also by the end of a server that is
// killed.
func resetOnClose(conn *net.TCPConn) { _ = conn.SetLinger(0) }

// newConn returns a connection that was acquired, and that is reset on close.
func (n *Network) newConn(conn *net.TCPConn, target, owner string) *Conn {
	return &Conn{conn: tcpconn.New(conn), target: target, release: sync.OnceFunc(func() { n.connections.Release(owner) })}
}

func (n *Network) dial(ctx context.Context, t *Target) (*net.TCPConn, error) {
	addresses, err := n.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	var failure error
	for i, addr := range addresses {
		conn, err := n.dialAddress(ctx, t, netip.AddrPortFrom(addr, t.Port), len(addresses)-i)
		if err == nil {
			return conn, nil
		}
		// A denial tells the caller more than that another address refused.
		if failure == nil || isKind(err, Denied) && !isKind(failure, Denied) {
			failure = err
		}
	}
	return nil, failure
}

func isKind(err error, kind Kind) bool {
	typed, ok := errors.AsType[*Error](err)
	return ok && typed.Kind == kind
}

// resolve returns the addresses of the host.
func (n *Network) resolve(ctx context.Context, t *Target) ([]netip.Addr, error) {
	if t.Host == "" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if addr, err := netip.ParseAddr(t.Host); err == nil {
		return []netip.Addr{addr.Unmap().WithZone("")}, nil
	}
	addresses, err := cmp.Or(n.options().Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", t.Host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return nil, t.failure(netip.AddrPort{}, err)
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap().WithZone("")
	}
	return addresses, nil
}

// dialAddress checks one address and connects to it, within its share of the time.
func (n *Network) dialAddress(ctx context.Context, t *Target, to netip.AddrPort, left int) (*net.TCPConn, error) {
	if err := n.options().Rules.Check(to); err != nil {
		return nil, t.denied(to, err)
	}
	var owned []uint32
	permitted := n.options().Allowed.permits(t.Host, to)
	if !permitted {
		var err error
		if owned, err = n.checkOwn(t, to); err != nil {
			return nil, err
		}
	}
	deadline, _ := ctx.Deadline()
	dialer := net.Dialer{Timeout: time.Until(deadline) / time.Duration(left)}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, t.failure(to, err)
	}
	tcp := conn.(*net.TCPConn)
	resetOnClose(tcp)
	if err := n.options().Rules.CheckConnected(tcp); err != nil {
		_ = tcp.Close()
		return nil, t.denied(to, err)
	}
	if !permitted {
		if err := n.checkPeer(t, to, tcp, owned); err != nil {
			_ = tcp.Close()
			return nil, err
		}
	}
	return tcp, nil
}

// checkOwn returns the sockets that would accept a connection, all of which belong to processes of
// the session.
func (n *Network) checkOwn(t *Target, to netip.AddrPort) (inodes []uint32, err error) {
	switch {
	case !n.options().Allowed.own:
		return nil, t.denied(to, errors.New("ports_allow does not have it"))
	case !destination.IsLocal(to.Addr()):
		return nil, t.denied(to, errors.New("the address is not one of the server's machine, and ports_allow does not have it"))
	}
	s, err := accepting(to)
	if err != nil {
		return nil, t.failure(to, err)
	}
	if len(s) == 0 {
		return nil, t.failure(to, unix.ECONNREFUSED)
	}
	foreign, err := t.foreign(s)
	if err != nil {
		return nil, err
	}
	if foreign {
		return nil, t.denied(to, errors.New("no process of the session listens there, and ports_allow does not have it"))
	}
	return slices.Collect(maps.Keys(s)), nil
}

// accepting returns the sockets that may accept a connection to an address of this host.
func accepting(to netip.AddrPort) (sockets, error) {
	s, err := listening()
	for inode, l := range s {
		at := l.Addr.Addr()
		any := at.IsUnspecified() && (at.Is4() == to.Addr().Is4() || at.Is6() && !l.V6Only)
		if l.Addr.Port() != to.Port() || at != to.Addr() && !any {
			delete(s, inode)
		}
	}
	return s, err
}

// foreign reports whether one of the sockets belongs to no process of the session.
func (t *Target) foreign(s sockets) (bool, error) {
	list, err := t.Processes()
	if err != nil {
		return false, err
	}
	found, err := s.owned(plain(list))
	if err != nil {
		return false, &Error{Kind: Unreachable, Target: t.String(), Err: err}
	}
	owned := map[uint32]bool{}
	for _, ports := range found {
		for _, p := range ports {
			owned[p.inode] = true
		}
	}
	return len(owned) < len(s), nil
}

// checkPeer checks that the connection was accepted by one of the sockets. Between the check and the
// connect, one could be closed and another process listen on its port. While they listen no other
// can have accepted it. Otherwise the socket at the other end decides. If that is closed already,
// what the caller sends is not read.
func (n *Network) checkPeer(t *Target, to netip.AddrPort, conn *net.TCPConn, before []uint32) error {
	now, err := accepting(to)
	if err != nil {
		return t.failure(to, err)
	}
	for inode := range now {
		if !slices.Contains(before, inode) {
			return t.denied(to, errors.New("another process began to listen there"))
		}
	}
	if len(now) > 0 {
		return nil
	}
	peer, err := sockdiag.Peer(conn)
	switch {
	case errors.Is(err, sockdiag.ErrNoOwner), errors.Is(err, sockdiag.ErrDisconnected):
		return nil
	case err != nil:
		return t.failure(to, err)
	}
	foreign, err := t.foreign(sockets{peer.Inode: {Addr: to, Inode: peer.Inode}})
	if err == nil && foreign {
		err = t.denied(to, errors.New("another process accepted the connection"))
	}
	return err
}

func (t *Target) denied(to netip.AddrPort, err error) error {
	if refused, ok := errors.AsType[*destination.Refused](err); ok {
		err = errors.New(refused.Reason)
	}
	return &Error{Kind: Denied, Target: t.String(), Address: to, Err: err}
}

// failure returns the error for one of the system.
func (t *Target) failure(to netip.AddrPort, err error) error {
	e := &Error{Kind: Unreachable, Target: t.String(), Address: to, Err: err}
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		e.Kind = ConnectionRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, unix.ETIMEDOUT):
		e.Kind = TimedOut
		e.Err = errors.New("port_connect_timeout is over")
	}
	return e
}

// Conn is a connection to a port, or one that was accepted. Read and Write may be called concurrently, and Reset at any time.
type Conn struct {
	conn    *tcpconn.Conn
	target  string
	release func()
}

// Address returns the address of the other end.
func (c *Conn) Address() netip.AddrPort { return c.conn.RemoteAddr().(*net.TCPAddr).AddrPort() }

// Read reads what is available, and blocks until there is something. It returns io.EOF when the
// other side has ended its direction in order, and an [*Error] for every other end.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	return n, c.failure(err)
}

// Write writes everything, and blocks while the other side does not read. Errors are an [*Error].
func (c *Conn) Write(p []byte) error {
	_, err := c.conn.Write(p)
	return c.failure(err)
}

// CloseWrite ends this direction. The other one continues.
func (c *Conn) CloseWrite() error { return c.failure(c.conn.CloseWrite()) }

// Close closes a connection of which both directions have ended. It does not block.
func (c *Conn) Close() {
	_ = c.conn.SetLinger(-1)
	c.Reset()
}

// Reset breaks the connection off, so that the other side gets an error, and ends Read and Write. It
// does not block. After Close it does nothing.
func (c *Conn) Reset() {
	_ = c.conn.Close()
	c.release()
}

func (c *Conn) failure(err error) error {
	opErr, ok := errors.AsType[*net.OpError](err)
	if !ok { // nil or io.EOF
		return err
	}
	return &Error{Kind: ConnectionReset, Target: c.target, Address: c.Address(), Err: opErr.Err}
}
