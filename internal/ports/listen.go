package ports

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/notify"
)

// Addresses are those that may be listened on. The zero value is none.
type Addresses uint8

// Sets of addresses.
const (
	NoAddress Addresses = iota
	LoopbackAddresses
	AnyAddress
)

// ListenOptions configure the listeners of a [Network].
type ListenOptions struct {
	// Addresses are where callers may listen.
	Addresses Addresses
	// PerOwner bounds the listeners of one owner. 0 allows none.
	PerOwner int
	// Backlog bounds the connections to one listener that wait to be accepted. Further ones are
	// reset. 0 resets all.
	Backlog int
	// AcceptTimeout is how long each may wait. Then it is reset.
	AcceptTimeout time.Duration
}

// ErrListenersClosed is the error of listeners after [Listeners.Close].
var ErrListenersClosed = errors.New("the listeners are closed")

// acceptPause is the time after a failure to accept, for example for lack of descriptors.
const acceptPause = 100 * time.Millisecond

// Listeners are ports that are open for one session, and their connections that wait to be accepted.
// It is a session.Resource. All methods may be called concurrently.
type Listeners struct {
	network *Network
	owner   string
	emptied func()

	mu      sync.Mutex
	open    map[*Listener]struct{} // guarded by mu
	byID    map[string]*Listener   // guarded by mu; those with an id
	waiting map[string]*arrival    // guarded by mu; by connection id
	closed  bool                   // guarded by mu
}

// arrival is a connection that waits to be accepted.
type arrival struct {
	Arrival
	listener *Listener
	conn     *net.TCPConn
	expiry   *time.Timer
}

// Arrival is a connection that has arrived at a port.
type Arrival struct {
	// ID is what [Listeners.Accept] needs. It is unique and cannot be guessed.
	ID string
	// Peer is the address of the other end.
	Peer netip.AddrPort
}

// Listeners returns an empty set for an owner. emptied is called, without locks, whenever it has
// become empty, possibly more than once.
func (n *Network) Listeners(owner string, emptied func()) *Listeners {
	return &Listeners{network: n, owner: owner, emptied: emptied,
		open: map[*Listener]struct{}{}, byID: map[string]*Listener{}, waiting: map[string]*arrival{}}
}

// Listener is an open port.
type Listener struct {
	set    *Listeners
	id     string
	socket *net.TCPListener

	ctx       context.Context // ends with Close
	cancel    context.CancelCauseFunc
	closeOnce sync.Once
	accepting sync.WaitGroup
	arrived   notify.Signal

	waiting  int        // guarded by set.mu; how many of set.waiting are its own
	unlisted []*arrival // guarded by set.mu; those of them that Next has not returned
}

// Listen opens a port; port 0 is a free one. The listener must be closed. If the id is not empty, an
// earlier listener with it is closed first. Listen does not wait. Errors are an [*Error], or
// [ErrListenersClosed].
func (s *Listeners) Listen(at netip.AddrPort, id string) (*Listener, error) {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if err := s.network.mayListen(at); err != nil {
		return nil, err
	}
	s.mu.Lock()
	former := s.byID[id]
	s.mu.Unlock()
	if former != nil {
		former.Close(&Error{Kind: TakenOver})
	}
	if !s.network.listeners.Acquire(s.owner) {
		return nil, &Error{Kind: TooManyListeners, Limit: s.network.options().Listen.PerOwner}
	}
	l, err := s.bind(at, id)
	if err == nil {
		former, err = s.add(l)
	}
	if err != nil {
		s.network.listeners.Release(s.owner)
		return nil, err
	}
	if former != nil { // of a call at the same time, with another port
		former.Close(&Error{Kind: TakenOver})
	}
	return l, nil
}

// mayListen returns an error if an address must not be listened on.
func (n *Network) mayListen(at netip.AddrPort) error {
	allowed := n.options().Listen.Addresses
	switch {
	case allowed == NoAddress:
		return listenDenied(at, "ports_listen is off")
	case allowed == LoopbackAddresses && !at.Addr().IsLoopback():
		return listenDenied(at, "it is not on loopback, and ports_listen is loopback")
	case n.options().Rules.IsOwnPort(at.Port()):
		// Clients that look for this server by another of its addresses would show their credentials.
		return listenDenied(at, "it is the port of a listener of this server")
	}
	return nil
}

func listenDenied(at netip.AddrPort, why string) error {
	return &Error{Kind: ListenDenied, Target: at.String(), Address: at, Err: errors.New(why)}
}

// bind opens the socket.
func (s *Listeners) bind(at netip.AddrPort, id string) (*Listener, error) {
	network := "tcp"
	if at.Addr().Is4() {
		network = "tcp4" // otherwise 0.0.0.0 would be both families
	}
	socket, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, listenFailure(at, err)
	}
	l := &Listener{set: s, id: id, socket: socket, arrived: notify.NewSignal()}
	if err := s.network.mayListen(l.Addr()); err != nil { // the kernel has chosen the port
		_ = socket.Close()
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l, nil
}

func listenFailure(at netip.AddrPort, err error) error {
	e := &Error{Kind: ListenFailed, Target: at.String(), Address: at, Err: err}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		e.Err = errno
	}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Kind = ListenDenied
	case errors.Is(err, unix.EADDRINUSE):
		e.Kind = InUse
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EAFNOSUPPORT):
		e.Kind = AddressUnavailable
	}
	return e
}

// add begins to accept, and returns the listener that has had the id until now, if there is one.
func (s *Listeners) add(l *Listener) (former *Listener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = l.socket.Close()
		l.cancel(ErrListenersClosed)
		return nil, ErrListenersClosed
	}
	s.open[l] = struct{}{}
	if l.id != "" {
		former, s.byID[l.id] = s.byID[l.id], l
	}
	l.accepting.Go(l.accept) // before another call can close it, which waits for it
	return former, nil
}

// IsEmpty implements session.Resource.
func (s *Listeners) IsEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)+len(s.waiting) == 0
}

// Close implements session.Resource: it closes all listeners with [ErrListenersClosed], and resets the
// connections that wait.
func (s *Listeners) Close() {
	s.mu.Lock()
	s.closed = true
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, l := range open {
		l.Close(ErrListenersClosed)
	}
	s.mu.Lock()
	waiting := slices.Collect(maps.Values(s.waiting)) // there will be no others
	s.mu.Unlock()
	s.discard(waiting...)
}

// Addr returns the address and port, with the port that the kernel chose.
func (l *Listener) Addr() netip.AddrPort {
	at := l.socket.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// accept accepts what arrives, until the listener is closed.
func (l *Listener) accept() {
	for l.ctx.Err() == nil {
		conn, err := l.socket.AcceptTCP()
		if err != nil {
			backoff.Pause(l.ctx, acceptPause)
			continue
		}
		resetOnClose(conn)
		if !l.receive(conn) {
			_ = conn.Close()
		}
	}
}

// receive keeps a connection until it is accepted, unless there are too many.
func (l *Listener) receive(conn *net.TCPConn) bool {
	s := l.set
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	a := &arrival{Arrival: Arrival{ID: rand.Text(), Peer: netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())}, listener: l, conn: conn}
	s.mu.Lock()
	defer s.mu.Unlock()
	options := s.network.options().Listen
	if l.ctx.Err() != nil || l.waiting >= options.Backlog || !s.network.connections.Acquire(s.owner) {
		return false
	}
	a.expiry = time.AfterFunc(options.AcceptTimeout, func() { s.discard(a) })
	s.waiting[a.ID] = a
	l.waiting++
	l.unlisted = append(l.unlisted, a)
	l.arrived.Set()
	return true
}

// take takes a connection from those that wait, or returns nil. s.mu is held.
func (s *Listeners) take(id string) *arrival {
	a := s.waiting[id]
	if a != nil {
		delete(s.waiting, id)
		l := a.listener
		l.waiting--
		l.unlisted = slices.DeleteFunc(l.unlisted, func(other *arrival) bool { return other == a })
		a.expiry.Stop()
	}
	return a
}

// discard resets those connections that still wait.
func (s *Listeners) discard(list ...*arrival) {
	for _, a := range list {
		s.mu.Lock()
		waited := s.take(a.ID) != nil
		s.mu.Unlock()
		if waited {
			_ = a.conn.Close()
			s.network.connections.Release(s.owner)
		}
	}
	s.noteEmpty()
}

// noteEmpty calls emptied if the set is empty.
func (s *Listeners) noteEmpty() {
	if s.IsEmpty() {
		s.emptied()
	}
}

// Accept returns a connection that has arrived at a listener of the set, once. It does not block, and
// the end of the listener does not affect the connection. The error is an [*Error] of kind
// [ConnectionNotFound].
func (s *Listeners) Accept(id string) (*Conn, error) {
	s.mu.Lock()
	a := s.take(id)
	s.mu.Unlock()
	if a == nil {
		return nil, &Error{Kind: ConnectionNotFound, Target: id}
	}
	s.noteEmpty()
	return s.network.newConn(a.conn, a.Peer.String(), s.owner), nil
}

// Next blocks until a connection arrives. It is for one goroutine. The error is that of the end of
// the listener: the argument of Close, an [*Error] of kind [TakenOver], or [ErrListenersClosed].
func (l *Listener) Next() (Arrival, error) {
	for {
		if a, ok := l.next(); ok {
			return a, nil
		}
		select {
		case <-l.arrived.C():
		case <-l.ctx.Done():
			return Arrival{}, context.Cause(l.ctx)
		}
	}
}

func (l *Listener) next() (Arrival, bool) {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	if len(l.unlisted) == 0 {
		return Arrival{}, false
	}
	a := l.unlisted[0]
	l.unlisted = l.unlisted[1:]
	return a.Arrival, true
}

// Close closes the port and resets the connections that Next has not returned. Those that it has may
// still be accepted in time: their acceptance may be under way. When Close returns the port is free. It
// does not wait for anything else. The first call decides what Next returns.
func (l *Listener) Close(cause error) {
	l.closeOnce.Do(func() {
		l.cancel(cause)
		stopListening(l.socket)
		_ = l.socket.Close()
		l.accepting.Wait()
		s := l.set
		s.mu.Lock()
		delete(s.open, l)
		if s.byID[l.id] == l {
			delete(s.byID, l.id)
		}
		unlisted := slices.Clone(l.unlisted)
		s.mu.Unlock()
		s.network.listeners.Release(s.owner)
		s.discard(unlisted...)
	})
}

// stopListening makes the port free also while a process that this program has forked, and that has
// not yet called exec, shares the socket: closing it here would leave it open there.
func stopListening(socket *net.TCPListener) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
}
