package transports

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testport"
)

var portScenarios = []scenario{
	{name: "ports of a process", do: portsOfProcess, except: notWithJSON("a process cannot be left behind")},
	{name: "ports of the server", do: portsOfServer, except: notWithJSON("ListenPort cannot be called over the exec-server protocol")},
}

// portsOfServer lets the server listen, as execwire port-forward -R does.
func portsOfServer(v *scenarioRun) error {
	at := client.ListenAddress{ListenerID: v.newID()}
	l, err := v.client.ListenPort(v.ctx, at)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = peer.Close() }()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if conn.RemoteAddr().String() != peer.LocalAddr().String() || conn.LocalAddr().String() != l.Addr().String() {
		v.Errorf("the connection is from %v to %v, want %v to %v", conn.RemoteAddr(), conn.LocalAddr(), peer.LocalAddr(), l.Addr())
	}

	// The listener is lost and taken over; the connection remains.
	at.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	again, err := v.client.ListenPort(v.ctx, at)
	if err != nil {
		return err
	}
	if _, err := l.Accept(); client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PORT_LISTENER_TAKEN_OVER {
		v.Errorf("Accept of a listener that was taken over: %v", err)
	}
	if _, err := v.client.ListenPort(v.ctx, client.ListenAddress{Port: at.Port}); !errors.Is(err, syscall.EADDRINUSE) {
		v.Errorf("a port in use: %v", err)
	}
	accepting := make(chan error, 1)
	go func() {
		_, err := again.Accept()
		accepting <- err
	}()
	_ = again.Close()
	if err := <-accepting; !errors.Is(err, net.ErrClosed) {
		v.Errorf("Accept after Close: %v", err)
	}

	sent := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	for what, ends := range map[string][2]net.Conn{"to the peer": {conn, peer}, "from the peer": {peer, conn}} {
		written := make(chan error, 1)
		go func() {
			_, err := ends[0].Write(sent)
			written <- errors.Join(err, ends[0].(interface{ CloseWrite() error }).CloseWrite())
		}()
		got, err := io.ReadAll(ends[1])
		if err := errors.Join(err, <-written); err != nil || !bytes.Equal(got, sent) {
			v.Errorf("%s: %d of %d bytes, %v", what, len(got), len(sent), err)
		}
	}
	return nil
}

// errSeen ends a watch.
var errSeen = errors.New("the expected port was reported")

func portsOfProcess(v *scenarioRun) error {
	id, err := v.start(harness.Program("echo-server", "127.0.0.1:0"), harness.WithStdin)
	if err != nil {
		return err
	}
	var port *execwirev1.Port
	err = v.client.WatchPorts(v.ctx, &execwirev1.WatchPortsRequest{}, func(m *execwirev1.WatchPortsResponse) error {
		for _, port = range m.GetOpened() {
			if port.GetProcessId() == id {
				return errSeen
			}
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return err
	}
	list, err := v.client.ListPorts(v.ctx, &execwirev1.ListPortsRequest{ProcessId: id})
	if err != nil || len(list.GetPorts()) != 1 || list.GetPorts()[0].GetPort() != port.GetPort() {
		v.Errorf("ListPorts: %v, %v", list, err)
	}

	conn, err := v.client.DialPort(v.ctx, client.PortAddress{Port: uint16(port.GetPort())})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sent := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		written <- errors.Join(err, conn.CloseWrite())
	}()
	got, err := io.ReadAll(conn)
	if err := errors.Join(err, <-written); err != nil || !bytes.Equal(got, sent) {
		v.Errorf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	if _, err := conn.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		v.Errorf("Write after CloseWrite: %v", err)
	}

	_, err = v.client.DialPort(v.ctx, client.PortAddress{Port: testport.Reserve(v)})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		v.Errorf("a port on which nothing listens: %v", err)
	}
	ended, cancel := context.WithCancelCause(v.ctx)
	cancel(errSeen)
	if _, err := v.client.DialPort(ended, client.PortAddress{Port: uint16(port.GetPort())}); !errors.Is(err, errSeen) {
		v.Errorf("a context that is done: %v", err)
	}

	// A process that is killed resets its connections: no end is reported.
	broken, err := v.client.DialPort(v.ctx, client.PortAddress{Port: uint16(port.GetPort())})
	if err != nil {
		return err
	}
	defer func() { _ = broken.Close() }()
	if _, err := broken.Write([]byte("reset\n")); err != nil {
		v.Errorf("Write: %v", err)
	}
	if got, err := io.ReadAll(broken); !errors.Is(err, syscall.ECONNRESET) {
		v.Errorf("the connection was reset after %q: %v", got, err)
	}
	_, err = v.client.Terminate(v.ctx, client.ProcessRef{ProcessID: id}, client.Termination{Force: true})
	return err
}

// TestPortConn_IsNetConn checks deadlines, concurrent calls and closing as for any net.Conn.
func TestPortConn_IsNetConn(t *testing.T) {
	harness.Waits(t)
	site := openListener(t, "unix://"+harness.ShortDir(t)+"/s", func(cfg *config.Config) { cfg.PortsAllow = []string{"loopback"} })
	c := site.dial(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	at := client.PortAddress{Port: uint16(listener.Addr().(*net.TCPAddr).Port)}
	t.Run("dialed", func(t *testing.T) {
		nettest.TestConn(t, func() (near, far net.Conn, stop func(), err error) {
			near, err = c.DialPort(harness.Context(t), at)
			if err != nil {
				return nil, nil, nil, err
			}
			far, err = listener.Accept()
			return near, far, func() { _ = near.Close(); _ = far.Close() }, err
		})
	})
	remote, err := c.ListenPort(harness.Context(t), client.ListenAddress{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close() })
	t.Run("accepted", func(t *testing.T) {
		nettest.TestConn(t, func() (near, far net.Conn, stop func(), err error) {
			far, err = net.Dial("tcp", remote.Addr().String())
			if err != nil {
				return nil, nil, nil, err
			}
			near, err = remote.Accept()
			return near, far, func() { _ = near.Close(); _ = far.Close() }, err
		})
	})
}

// TestDialPort_Close_DeliversWritten: like TCP, Close does not wait, and loses nothing. A reset
// does.
func TestDialPort_Close_DeliversWritten(t *testing.T) {
	harness.Waits(t)
	site := openListener(t, "unix://"+harness.ShortDir(t)+"/s", func(cfg *config.Config) { cfg.PortsAllow = []string{"loopback"} })
	c := site.dial(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	at := client.PortAddress{Port: uint16(listener.Addr().(*net.TCPAddr).Port)}
	for _, reset := range []bool{false, true} {
		conn, err := c.DialPort(harness.Context(t), at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if reset {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
		far, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = far.SetDeadline(time.Now().Add(harness.StepTimeout))
		got, err := io.ReadAll(far)
		_ = far.Close()
		switch {
		case reset && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("a reset: %d bytes, %v", len(got), err)
		case !reset && (err != nil || len(got) != 100_000):
			t.Errorf("a close: %d bytes, %v", len(got), err)
		}
	}

	// The other side must not believe that everything was read.
	conn, err := c.DialPort(harness.Context(t), at)
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	_ = far.SetDeadline(time.Now().Add(harness.StepTimeout))
	if _, err := far.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a close with unread data: %v", err)
	}

	// The end of the client does not wait for a reader, and is no end of file.
	conn, err = c.DialPort(harness.Context(t), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	last, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = last.Close() }()
	if _, err := last.Write(make([]byte, 200_000)); err != nil { // several messages
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if n, err := io.Copy(io.Discard, conn); err == nil {
		t.Errorf("a connection of a closed client ends after %d bytes", n)
	}
}
