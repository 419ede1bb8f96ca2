package ports

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/destination"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	n := NewNetwork(Options{Allowed: Allowed{loopback: true}, Rules: new(destination.Rules), PerOwner: 1, Timeout: time.Minute})
	c, err := n.Dial(context.Background(), Target{Port: uint16(listener.Addr().(*net.TCPAddr).Port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	port, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return c, port.(*net.TCPConn)
}

// writeUntilError writes until the connection is known to be broken.
func writeUntilError(c *Conn) error {
	for {
		if err := c.Write([]byte("unread")); err != nil {
			return err
		}
	}
}

// The system reports a reset to Write or Read, and not to both.
func TestRead_AfterWriteGotReset_IsNoEndOfFile(t *testing.T) {
	t.Parallel()
	c, port := connected(t)
	if err := errors.Join(port.SetLinger(0), port.Close()); err != nil {
		t.Fatal(err)
	}
	if err := writeUntilError(c); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("Write: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !isKind(err, ConnectionReset) {
		t.Errorf("Read: %v", err)
	}
}

// A direction that has ended in order stays complete when writing fails later.
func TestRead_ResetAfterEnd_IsEndOfFile(t *testing.T) {
	t.Parallel()
	c, port := connected(t)
	if err := port.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	expectEnd := func() {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read: %v", err)
		}
	}
	expectEnd()
	_ = port.Close()
	if err := writeUntilError(c); !errors.Is(err, unix.EPIPE) {
		t.Fatalf("Write: %v", err)
	}
	expectEnd()
}

func TestAllowed_Permits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		entry, host, to string
		permitted       bool
	}{
		{"own", "", "127.0.0.1:80", false}, // the sockets decide
		{"loopback", "", "127.0.0.1:80", true},
		{"loopback", "", "127.9.9.9:80", true},
		{"loopback", "", "[::1]:80", true},
		{"loopback", "", "10.0.0.1:80", false},
		{"loopback", "localhost", "10.0.0.1:80", false},
		{"loopback", "", "[64:ff9b::7f00:1]:80", false},
		{"db.internal:5432", "db.internal", "10.0.0.1:5432", true},
		{"DB.internal.:5432", "db.INTERNAL", "10.0.0.1:5432", true},
		{"db.internal:5432", "db.internal", "10.0.0.1:5433", false},
		{"db.internal:5432", "10.0.0.1", "10.0.0.1:5432", false},
		{"db.internal:5432", "a.db.internal", "10.0.0.1:5432", false},
		{"db.internal:*", "db.internal", "10.0.0.1:1", true},
		{"10.0.0.1:80", "any.name", "10.0.0.1:80", true},
		{"10.0.0.1:80", "10.0.0.1", "10.0.0.2:80", false},
		{"[::ffff:10.0.0.1]:80", "", "10.0.0.1:80", true},
		{"10.1.2.3/8:80", "", "10.255.0.1:80", true},
		{"10.0.0.0/8:80", "", "11.0.0.1:80", false},
		{"0.0.0.0/0:*", "", "[2001:db8::1]:80", false},
		{"[fd00::/8]:*", "", "[fd12::1]:80", true},
		{"[::/0]:*", "", "10.0.0.1:80", false},
	} {
		a, err := ParseAllowed([]string{tt.entry})
		if err != nil {
			t.Errorf("%s: %v", tt.entry, err)
		} else if got := a.permits(tt.host, netip.MustParseAddrPort(tt.to)); got != tt.permitted {
			t.Errorf("%s: host %q at %s is permitted: %v", tt.entry, tt.host, tt.to, got)
		}
	}
	for _, entry := range []string{"", "all", "*", "host", "host:", "host:0", "host:65536", "host:http", ":80", "*:80", "*.internal:80", "10.0.0.0/33:80", "host/8:80", "::1:80"} {
		if a, err := ParseAllowed([]string{entry}); err == nil {
			t.Errorf("%q is accepted as %+v", entry, a)
		}
	}
	if (Allowed{}).permits("", netip.MustParseAddrPort("127.0.0.1:80")) {
		t.Error("the zero value permits something")
	}
}

// Ports below 1024 need a capability of the server's user, which this thread gives up. No other
// goroutine uses the thread after that.
func TestListen_PrivilegedPort_IsDenied(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		header, none := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(header, &none[0]); err != nil {
			failed <- err
			return
		}
		n := NewNetwork(Options{Rules: new(destination.Rules), Listen: ListenOptions{Addresses: LoopbackAddresses, PerOwner: 1}})
		l, err := n.Listeners("", func() {}).Listen(netip.MustParseAddrPort("127.0.0.1:1"), "")
		if err == nil {
			l.Close(nil)
		}
		failed <- err
	}()
	err := <-failed
	if start, _ := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); string(start) == "0\n" {
		if err != nil { // no port is privileged here
			t.Error(err)
		}
		return
	}
	if !isKind(err, ListenDenied) || !errors.Is(err, unix.EACCES) {
		t.Errorf("Listen: %v", err)
	}
}

// Of calls with one id that run at the same time, each with a free port, one remains.
func TestListen_SameID_Concurrently_OneRemains(t *testing.T) {
	t.Parallel()
	const calls = 20
	n := NewNetwork(Options{Rules: new(destination.Rules), Listen: ListenOptions{Addresses: LoopbackAddresses, PerOwner: calls}})
	all := n.Listeners("", func() {})
	defer all.Close()
	var listening sync.WaitGroup
	for range calls {
		listening.Go(func() {
			if _, err := all.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "id"); err != nil {
				t.Error(err)
			}
		})
	}
	listening.Wait()
	if open := len(all.open); open != 1 {
		t.Errorf("%d listeners are open", open)
	}
}

// A server that is killed closes a connection that waits to be accepted without a call of ours: its peer
// gets a reset, not an end.
func TestListen_WaitingConnection_IsResetOnClose(t *testing.T) {
	t.Parallel()
	n := NewNetwork(Options{Rules: new(destination.Rules), PerOwner: 1, Listen: ListenOptions{Addresses: LoopbackAddresses, PerOwner: 1, Backlog: 1, AcceptTimeout: time.Minute}})
	all := n.Listeners("", func() {})
	defer all.Close()
	l, err := all.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	arrived, err := l.Next()
	if err != nil {
		t.Fatal(err)
	}
	_ = all.waiting[arrived.ID].conn.Close() // as the system does
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer gets %v", err)
	}
}

// A port is free as soon as its listener is closed, also while a process that was forked meanwhile, and
// has not called exec, shares the socket. The copy of the descriptor stands for that process.
func TestListen_SocketIsShared_CloseFreesPort(t *testing.T) {
	t.Parallel()
	n := NewNetwork(Options{Rules: new(destination.Rules), Listen: ListenOptions{Addresses: LoopbackAddresses, PerOwner: 1}})
	all := n.Listeners("", func() {})
	defer all.Close()
	first, err := all.Listen(netip.MustParseAddrPort("127.18.0.2:0"), "id")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := first.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shared.Close() }()
	if _, err := all.Listen(first.Addr(), "id"); err != nil {
		t.Error(err)
	}
}
