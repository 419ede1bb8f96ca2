package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/ports"
)

// withListeners lets callers listen at loopback addresses, unless change changes that.
func withListeners(change func(*ports.Options)) func(*settings) {
	return withPorts(func(o *ports.Options) {
		o.PerOwner = 100
		o.Listen = ports.ListenOptions{Addresses: ports.LoopbackAddresses, PerOwner: 10, Backlog: 100, AcceptTimeout: testTimeout}
		if change != nil {
			change(o)
		}
	})
}

// portListener is the caller's side of a ListenPort stream that listens.
type portListener struct {
	grpc.ServerStreamingClient[execwirev1.ListenPortResponse]
	f      *fixture
	at     netip.AddrPort
	cancel context.CancelCauseFunc
}

// listen returns a listener that is open.
func (f *fixture) listen(req *execwirev1.ListenPortRequest) (*portListener, error) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.ctx)
	f.t.Cleanup(func() { cancel(nil) })
	stream, err := f.ports.ListenPort(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(first.GetListening().GetAddress())
	if err != nil {
		f.t.Fatalf("the first message is %v", first)
	}
	return &portListener{stream, f, at, cancel}, nil
}

func (f *fixture) mustListen(req *execwirev1.ListenPortRequest) *portListener {
	f.t.Helper()
	l, err := f.listen(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// dial connects to the port, as a process would.
func (l *portListener) dial() *net.TCPConn {
	l.f.t.Helper()
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.at))
	if err != nil {
		l.f.t.Fatal(err)
	}
	l.f.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		l.f.t.Fatal(err)
	}
	return conn
}

// dialUnread connects more often than messages are sent to a caller that does not read, and returns the last
// connection.
func (l *portListener) dialUnread() (conn net.Conn) {
	for range 20 { // the stream of a caller in this program holds 16
		conn = l.dial()
	}
	return conn
}

// expectDialReset expects that a connection to the port is reset.
func (l *portListener) expectDialReset() {
	l.f.t.Helper()
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.at))
	if errors.Is(err, syscall.ECONNRESET) { // before it was reported as established
		return
	}
	if err != nil {
		l.f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	expectReset(l.f.t, conn)
}

// arrival receives the next arrival, which is of a connection.
func (l *portListener) arrival(of net.Conn) string {
	l.f.t.Helper()
	m, err := l.Recv()
	if err != nil {
		l.f.t.Fatal(err)
	}
	if a := m.GetArrival(); a.GetConnectionId() == "" || a.GetPeerAddress() != of.LocalAddr().String() {
		l.f.t.Fatalf("the message is %v, want an arrival from %v", m, of.LocalAddr())
	}
	return m.GetArrival().GetConnectionId()
}

// expectEnd receives the rest, up to an error.
func (l *portListener) expectEnd(code codes.Code, reason execwirev1.ErrorReason) {
	l.f.t.Helper()
	for {
		if _, err := l.Recv(); err != nil {
			expectFailure(l.f.t, err, code, reason)
			return
		}
	}
}

func accept(id string) *execwirev1.ConnectPortRequest {
	return &execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Accept{Accept: &execwirev1.PortAccept{ConnectionId: id}}}
}

// expectReset expects that a connection was reset.
func expectReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v, want a reset", err)
	}
}

// ownAddress is the address of ports that are expected to be free again: the kernel gives ports of
// 127.0.0.1 to others at once.
const ownAddress = "127.18.0.1"

// expectFree expects that a port of ownAddress can be bound.
func expectFree(t *testing.T, at netip.AddrPort) {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Error(err)
		return
	}
	_ = l.Close()
}

// Accepted connections have the rules of ConnectPort, and outlive the listener.
func TestListenPort_AcceptedConnection_OutlivesListener(t *testing.T) {
	leakcheck.Check(t)
	f := newFixture(t, withListeners(nil))
	for _, callerFirst := range []bool{true, false} {
		l := f.mustListen(&execwirev1.ListenPortRequest{Address: ownAddress})
		peer, reported := l.dial(), l.dial()
		id, late := l.arrival(peer), l.arrival(reported)
		c, err := f.openPort(accept(id))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.openPort(accept(id))
		expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_NOT_FOUND)

		unread := l.dialUnread()
		l.cancel(nil)
		expectReset(t, unread)
		expectFree(t, l.at)
		other, err := f.openPort(accept(late)) // the caller knew of it before the end
		if err != nil {
			t.Fatal(err)
		}
		other.cancel(nil)
		expectReset(t, reported)

		question := bytes.Repeat([]byte("question"), 100_000)
		toPeer := func() {
			go func() {
				for rest := question; len(rest) > 0; rest = rest[min(len(rest), 32<<10):] {
					_ = c.send(rest[:min(len(rest), 32<<10)])
				}
				_ = c.CloseSend()
			}()
			if got, err := io.ReadAll(peer); err != nil || !bytes.Equal(got, question) {
				t.Fatalf("the peer received %d bytes, %v", len(got), err)
			}
		}
		fromPeer := func() {
			go func() {
				_, _ = peer.Write(question)
				_ = peer.CloseWrite()
			}()
			if got, err := c.readAll(); err != nil || !bytes.Equal(got, question) {
				t.Fatalf("the caller received %d bytes, %v", len(got), err)
			}
		}
		if callerFirst {
			toPeer()
			fromPeer()
		} else {
			fromPeer()
			toPeer()
		}
		if _, err := c.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the call ended with %v", err)
		}
	}
}

func TestListenPort_AcceptedConnection_Reset(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withListeners(nil))
	l := f.mustListen(&execwirev1.ListenPortRequest{})
	peer := l.dial()
	c, err := f.openPort(accept(l.arrival(peer)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(peer.SetLinger(0), peer.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = c.readAll()
	expectFailure(t, err, codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_RESET)

	peer = l.dial()
	if c, err = f.openPort(accept(l.arrival(peer))); err != nil {
		t.Fatal(err)
	}
	c.cancel(nil)
	expectReset(t, peer)
}

func TestListenPort_Refusals(t *testing.T) {
	t.Parallel()
	own, taken := listenOnLoopback(t), listenOnLoopback(t)
	field, denied := execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, execwirev1.ErrorReason_ERROR_REASON_PORT_LISTEN_DENIED
	const ok = codes.OK
	for addresses, cases := range map[ports.Addresses][]struct {
		address string
		port    uint32
		code    codes.Code
		reason  execwirev1.ErrorReason
	}{
		ports.NoAddress: {
			{"", 0, codes.PermissionDenied, denied}, {"::1", 0, codes.PermissionDenied, denied}, {"0.0.0.0", 0, codes.PermissionDenied, denied},
		},
		ports.LoopbackAddresses: {
			{"", 0, ok, 0}, {"127.0.0.1", 0, ok, 0}, {"127.9.9.9", 0, ok, 0}, {"::1", 0, ok, 0}, {"::ffff:127.0.0.1", 0, ok, 0},
			{"0.0.0.0", 0, codes.PermissionDenied, denied}, {"::", 0, codes.PermissionDenied, denied}, {"::ffff:0.0.0.0", 0, codes.PermissionDenied, denied},
			{"192.0.2.1", 0, codes.PermissionDenied, denied}, {"224.0.0.1", 0, codes.PermissionDenied, denied},
			{"", portOf(own), codes.PermissionDenied, denied}, {"127.0.0.2", portOf(own), codes.PermissionDenied, denied},
			{"::1", portOf(own), codes.PermissionDenied, denied},
			{"", portOf(taken), codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE},
			{"", 1 << 16, codes.InvalidArgument, field}, {"localhost", 0, codes.InvalidArgument, field},
			{"127.0.0.1:80", 0, codes.InvalidArgument, field}, {"fe80::1%lo", 0, codes.InvalidArgument, field},
		},
		ports.AnyAddress: {
			{"", 0, ok, 0}, {"0.0.0.0", 0, ok, 0}, {"::", 0, ok, 0},
			{"192.0.2.1", 0, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_ADDRESS_UNAVAILABLE},
			{"0.0.0.0", portOf(own), codes.PermissionDenied, denied}, {"::", portOf(own), codes.PermissionDenied, denied},
			{"0.0.0.0", portOf(taken), codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE},
			{"::", portOf(taken), codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE},
		},
	} {
		f := newFixture(t, withListeners(func(o *ports.Options) {
			o.Listen.Addresses = addresses
			o.Rules.RefuseLocal(uint16(portOf(own)))
		}))
		for _, tt := range cases {
			l, err := f.listen(&execwirev1.ListenPortRequest{Address: tt.address, Port: tt.port})
			if tt.code != ok {
				if err == nil {
					t.Fatalf("addresses %d: listens on %q, port %d", addresses, tt.address, tt.port)
				}
				expectFailure(t, err, tt.code, tt.reason)
				continue
			}
			if err != nil {
				t.Errorf("addresses %d: %q: %v", addresses, tt.address, err)
				continue
			}
			l.arrival(l.dial())
		}
	}
	f := newFixture(t, withListeners(nil))
	for _, req := range []*execwirev1.ListenPortRequest{{SessionId: string(make([]byte, 257))}, {ListenerId: string(make([]byte, 257))}} {
		_, err := f.listen(req)
		expectFailure(t, err, codes.InvalidArgument, field)
	}
	_, err := f.listen(&execwirev1.ListenPortRequest{SessionId: "none"})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	for _, id := range []string{"", string(make([]byte, 257))} {
		_, err := f.openPort(accept(id))
		expectFailure(t, err, codes.InvalidArgument, field)
	}
	_, err = newFixture(t).listen(&execwirev1.ListenPortRequest{})
	expectFailure(t, err, codes.PermissionDenied, denied)
}

func TestListenPort_Limits(t *testing.T) {
	leakcheck.Check(t)
	t.Run("listeners", func(t *testing.T) {
		f := newFixture(t, withListeners(func(o *ports.Options) { o.Listen.PerOwner = 1 }))
		first := f.mustListen(&execwirev1.ListenPortRequest{})
		_, err := f.listen(&execwirev1.ListenPortRequest{SessionId: f.newSession()})
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_LISTENERS)
		first.cancel(nil)
		for err != nil {
			_, err = f.listen(&execwirev1.ListenPortRequest{})
		}
	})
	t.Run("backlog", func(t *testing.T) {
		// The connections in excess are reset, also while the caller does not read.
		f := newFixture(t, withListeners(func(o *ports.Options) { o.Listen.Backlog = 2 }))
		l, neighbour := f.mustListen(&execwirev1.ListenPortRequest{}), f.mustListen(&execwirev1.ListenPortRequest{})
		first, second := l.dial(), l.dial()
		for range 100 {
			l.expectDialReset()
		}
		peer := neighbour.dial()
		if _, err := f.openPort(accept(neighbour.arrival(peer))); err != nil {
			t.Errorf("another listener: %v", err)
		}
		if _, err := f.openPort(accept(l.arrival(first))); err != nil {
			t.Error(err)
		}
		third := l.dial()
		l.arrival(second)
		if _, err := f.openPort(accept(l.arrival(third))); err != nil {
			t.Error(err)
		}
	})
	t.Run("time", func(t *testing.T) {
		f := newFixture(t, withListeners(func(o *ports.Options) { o.Listen.AcceptTimeout = time.Millisecond }))
		l := f.mustListen(&execwirev1.ListenPortRequest{})
		for range 120 { // more than may wait
			l.expectDialReset()
		}
	})
	t.Run("connections", func(t *testing.T) {
		f := newFixture(t, withListeners(func(o *ports.Options) { o.PerOwner = 1 }))
		l := f.mustListen(&execwirev1.ListenPortRequest{})
		first := l.dial()
		id := l.arrival(first)
		l.expectDialReset()
		_, err := f.connect(&execwirev1.PortConnect{Port: 1})
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_CONNECTIONS)
		c, err := f.openPort(accept(id))
		if err != nil {
			t.Fatal(err)
		}
		l.expectDialReset()
		c.cancel(nil)
		expectReset(t, first)
	})
}

// Only the caller's own session, and only its principal, can accept.
func TestListenPort_OtherSession_CannotAccept(t *testing.T) {
	t.Parallel()
	var principal atomic.Value
	principal.Store(auth.Principal{Name: "ann"})
	f := newFixture(t, withListeners(nil), func(s *settings) {
		s.principal = func() auth.Principal { return principal.Load().(auth.Principal) }
	})
	session := f.newSession()
	l := f.mustListen(&execwirev1.ListenPortRequest{SessionId: session, Address: ownAddress})
	peer := l.dial()
	id := l.arrival(peer)
	other := f.mustListen(&execwirev1.ListenPortRequest{})
	_, err := f.openPort(accept(id)) // in the default session
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_NOT_FOUND)
	mine := accept(id)
	mine.GetAccept().SessionId = session
	principal.Store(auth.Principal{Name: "bob"})
	_, err = f.openPort(mine)
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	_, err = f.openPort(accept(id))
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_NOT_FOUND)
	principal.Store(auth.Principal{Name: "ann"})
	if _, err := f.openPort(mine); err != nil {
		t.Error(err)
	}
	left := l.dial()
	l.arrival(left)
	unread := l.dialUnread()
	if _, err := f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: session}); err != nil {
		t.Fatal(err)
	}
	l.expectEnd(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED)
	expectReset(t, left)
	expectReset(t, unread)
	expectFree(t, l.at)
	other.arrival(other.dial())
}

// A caller that has lost its connection gets its port again, although the server does not know.
func TestListenPort_SameID_TakesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withListeners(func(o *ports.Options) { o.Listen.PerOwner = 1 }))
	req := &execwirev1.ListenPortRequest{ListenerId: "one", Address: ownAddress}
	first := f.mustListen(req)
	unread := first.dialUnread()
	req.Port = uint32(first.at.Port())
	second := f.mustListen(req)
	if second.at != first.at {
		t.Errorf("%v took over %v", second.at, first.at)
	}
	first.expectEnd(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_LISTENER_TAKEN_OVER)
	expectReset(t, unread)
	second.arrival(second.dial())
}

// A port is free as soon as its call has ended, or the server stops, also while the caller does not
// read.
func TestListenPort_End_FreesPort(t *testing.T) {
	leakcheck.Check(t)
	f := newFixture(t, withListeners(nil))
	l := f.mustListen(&execwirev1.ListenPortRequest{Address: ownAddress})
	for range 20 {
		l.cancel(nil)
		again, err := f.listen(&execwirev1.ListenPortRequest{Address: ownAddress, Port: uint32(l.at.Port())})
		for err != nil { // the server learns of the end of a call later than its caller
			expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE)
			again, err = f.listen(&execwirev1.ListenPortRequest{Address: ownAddress, Port: uint32(l.at.Port())})
		}
		l = again
	}
	unread := l.dialUnread()
	f.server.EndWatches()
	expectReset(t, unread)
	expectFree(t, l.at)
	l.expectEnd(codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING)
	later, err := f.listen(&execwirev1.ListenPortRequest{})
	if err == nil {
		_, err = later.Recv()
	}
	expectFailure(t, err, codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING)
}

// The port does not give a process a network that its sandbox denies.
func TestListenPort_ConfinedProcess_KeepsItsRules(t *testing.T) {
	eachBackend(t, func(t *testing.T, f *fixture, _ execwirev1.SandboxBackend) {
		l := f.mustListen(&execwirev1.ListenPortRequest{})
		for _, network := range []execwirev1.NetworkAccess{execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED, execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED} {
			policy := readOnly()
			policy.GetManaged().Network = network
			f.start(confinedCall(command(network.String(), "/bin/bash", "-c", `exec 3<>"/dev/tcp/${0%:*}/${0#*:}" && read -u 3 line && [ "$line" = hello ]`, l.at.String()), policy))
			allowed := network == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
			if allowed { // the first connection that arrives
				m, err := l.Recv()
				if err != nil {
					t.Fatal(err)
				}
				c, err := f.openPort(accept(m.GetArrival().GetConnectionId()))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.send([]byte("hello\n")); err != nil {
					t.Fatal(err)
				}
			}
			if exit := f.waitClosed(network.String()).GetExit(); (exit.GetExitCode() == 0) != allowed {
				t.Errorf("network %v: %v", network, exit)
			}
		}
		peer := l.dial()
		l.arrival(peer) // the process without a network did not arrive
	}, withListeners(nil))
}
