package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/destination"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/testproc"
)

// withPorts sets the options of connections.
func withPorts(change func(*ports.Options), allowed ...string) func(*settings) {
	return func(set *settings) {
		list, err := ports.ParseAllowed(allowed)
		if err != nil {
			panic(err)
		}
		options := ports.Options{Allowed: list, Rules: new(destination.Rules), PerOwner: 10, Timeout: testTimeout}
		if change != nil {
			change(&options)
		}
		set.ports = ports.NewNetwork(options)
	}
}

func (f *fixture) watchPorts(req *execwirev1.WatchPortsRequest) grpc.ServerStreamingClient[execwirev1.WatchPortsResponse] {
	f.t.Helper()
	stream, err := f.ports.WatchPorts(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	return stream
}

// nextPorts receives one message of a watch.
func (f *fixture) nextPorts(stream grpc.ServerStreamingClient[execwirev1.WatchPortsResponse]) (opened, closed []*execwirev1.Port) {
	f.t.Helper()
	m, err := stream.Recv()
	if err != nil {
		f.t.Fatalf("WatchPorts: %v", err)
	}
	return m.GetOpened(), m.GetClosed()
}

func (f *fixture) listPorts(req *execwirev1.ListPortsRequest) []*execwirev1.Port {
	f.t.Helper()
	resp, err := f.ports.ListPorts(f.ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.GetPorts()
}

func equalPorts(a, b []*execwirev1.Port) bool {
	return slices.EqualFunc(a, b, func(a, b *execwirev1.Port) bool { return proto.Equal(a, b) })
}

// newSession attaches a session and returns its id.
func (f *fixture) newSession() string {
	f.t.Helper()
	stream, err := f.leases.AttachSession(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: &execwirev1.SessionAttach{}}}); err != nil {
		f.t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		f.t.Fatal(err)
	}
	return m.GetAttached().GetSession().GetSessionId()
}

// listenOnLine is a process of which a grandchild, in a session of its own, listens once a line
// arrives on stdin, and ends when stdin does.
func listenOnLine(id string) *execwirev1.StartProcessRequest {
	argv := testproc.Argv("listen-child", "127.0.0.1:0")
	req := command(id, append([]string{"/bin/sh", "-c", `read x; "$@"; true`, "sh"}, argv...)...)
	return withStdin(req)
}

func (f *fixture) writeLine(id string) {
	f.t.Helper()
	if _, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: []byte("\n")}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) closeStdin(id string) {
	f.t.Helper()
	if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: id}); err != nil {
		f.t.Fatal(err)
	}
}

func TestPorts_GrandchildThatListensLater_IsReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start(listenOnLine("p"))
	f.start(withStdin(command("other", "/bin/cat")))
	session, one, other := f.watchPorts(&execwirev1.WatchPortsRequest{}), f.watchPorts(&execwirev1.WatchPortsRequest{ProcessId: "p"}),
		f.watchPorts(&execwirev1.WatchPortsRequest{ProcessId: "other"})
	foreign := f.watchPorts(&execwirev1.WatchPortsRequest{SessionId: f.newSession()})
	for _, stream := range []grpc.ServerStreamingClient[execwirev1.WatchPortsResponse]{session, one, other, foreign} {
		if opened, closed := f.nextPorts(stream); len(opened)+len(closed) > 0 {
			t.Fatalf("the first message has %v, %v", opened, closed)
		}
	}
	f.writeLine("p")
	opened, closed := f.nextPorts(session)
	if len(opened) != 1 || len(closed) != 0 {
		t.Fatalf("opened %v, closed %v", opened, closed)
	}
	port := opened[0]
	if port.GetProcessId() != "p" || port.GetAddress() != "127.0.0.1" || port.GetPid() <= 0 || port.GetProgram() == "" {
		t.Errorf("the port is %v", port)
	}
	if again, _ := f.nextPorts(one); !equalPorts(again, opened) {
		t.Errorf("the watch of the process has %v", again)
	}
	for what, req := range map[string]*execwirev1.ListPortsRequest{"session": {}, "process": {ProcessId: "p"}} {
		if list := f.listPorts(req); !equalPorts(list, opened) {
			t.Errorf("the list of the %s is %v", what, list)
		}
	}
	if list := f.listPorts(&execwirev1.ListPortsRequest{ProcessId: "other"}); len(list) > 0 {
		t.Errorf("the other process has %v", list)
	}
	f.closeStdin("p")
	for what, stream := range map[string]grpc.ServerStreamingClient[execwirev1.WatchPortsResponse]{"session": session, "process": one} {
		if more, closed := f.nextPorts(stream); len(more) != 0 || !equalPorts(closed, opened) {
			t.Errorf("the watch of the %s has opened %v, closed %v", what, more, closed)
		}
	}
	if _, err := one.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the watch of a closed process ends with %v", err)
	}
	f.closeStdin("other")
	if _, err := other.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a watch without ports ends with %v", err)
	}
}

func TestPorts_OtherSession_SeesAndReachesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withPorts(nil, "own"))
	session := f.newSession()
	f.start(withStdin(command("p", testproc.Argv("listen", "127.0.0.1:0")...)))
	watch := f.watchPorts(&execwirev1.WatchPortsRequest{ProcessId: "p"})
	opened, _ := f.nextPorts(watch)
	for len(opened) == 0 {
		opened, _ = f.nextPorts(watch)
	}
	port := opened[0].GetPort()
	if list := f.listPorts(&execwirev1.ListPortsRequest{SessionId: session}); len(list) > 0 {
		t.Errorf("the other session has %v", list)
	}
	_, err := f.connect(&execwirev1.PortConnect{Port: port, SessionId: session})
	expectFailure(t, err, codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PORT_DENIED)
	for _, host := range []string{"", "127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		if _, err := f.connect(&execwirev1.PortConnect{Host: host, Port: port}); err != nil {
			t.Errorf("its own session, host %q: %v", host, err)
		}
	}
	_, err = f.connect(&execwirev1.PortConnect{Port: port, SessionId: "none"})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	_, err = f.connect(&execwirev1.PortConnect{Host: "127.0.0.2", Port: port}) // nobody listens there
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED)
	_, err = f.connect(&execwirev1.PortConnect{Host: "192.0.2.1", Port: port})
	expectFailure(t, err, codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PORT_DENIED)
}

func TestWatchPorts_ClosedSession_EndsWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.newSession()
	watch := f.watchPorts(&execwirev1.WatchPortsRequest{SessionId: session})
	f.nextPorts(watch)
	if _, err := f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: session}); err != nil {
		t.Fatal(err)
	}
	_, err := watch.Recv()
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

// connection is the caller's side of a ConnectPort stream.
type connection struct {
	grpc.BidiStreamingClient[execwirev1.ConnectPortRequest, execwirev1.ConnectPortResponse]
	t      *testing.T
	cancel context.CancelCauseFunc
}

// connect returns a connection that is established.
func (f *fixture) connect(m *execwirev1.PortConnect) (*connection, error) {
	f.t.Helper()
	return f.openPort(&execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Connect{Connect: m}})
}

// openPort returns a connection that is established, by its first message.
func (f *fixture) openPort(first *execwirev1.ConnectPortRequest) (*connection, error) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.ctx)
	f.t.Cleanup(func() { cancel(nil) })
	stream, err := f.ports.ConnectPort(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		f.t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddrPort(answer.GetConnected().GetAddress()); err != nil {
		f.t.Errorf("the first message is %v", answer)
	}
	return &connection{stream, f.t, cancel}, nil
}

func (c *connection) send(data []byte) error {
	return c.Send(&execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Data{Data: data}})
}

// readAll receives everything up to the end message.
func (c *connection) readAll() ([]byte, error) {
	c.t.Helper()
	var all []byte
	for {
		m, err := c.Recv()
		switch {
		case err != nil:
			return all, err
		case m.GetEnd() != nil:
			return all, nil
		case len(m.GetData()) == 0 || len(m.GetData()) > 64<<10:
			c.t.Errorf("a message is %v", m)
		}
		all = append(all, m.GetData()...)
	}
}

// portPair is a server that allows loopback, and a connection with both of its ends.
func portPair(t *testing.T) (*fixture, *connection, *net.TCPConn) {
	t.Helper()
	f := newFixture(t, withPorts(nil, "loopback"))
	listener := listenOnLoopback(t)
	c, err := f.connect(&execwirev1.PortConnect{Port: portOf(listener)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return f, c, conn.(*net.TCPConn)
}

func listenOnLoopback(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func portOf(l net.Listener) uint32 { return uint32(l.Addr().(*net.TCPAddr).Port) }

func TestConnectPort_HalfClose_KeepsOtherDirection(t *testing.T) {
	t.Parallel()
	t.Run("caller", func(t *testing.T) {
		_, c, port := portPair(t)
		if err := errors.Join(c.send([]byte("question")), c.CloseSend()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(port); err != nil || string(got) != "question" {
			t.Fatalf("the port received %q, %v", got, err)
		}
		if _, err := port.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		_ = port.CloseWrite()
		if got, err := c.readAll(); err != nil || string(got) != "answer" {
			t.Errorf("the caller received %q, %v", got, err)
		}
		if _, err := c.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the call ended with %v", err)
		}
	})
	t.Run("port", func(t *testing.T) {
		_, c, port := portPair(t)
		_, err := port.Write([]byte("greeting"))
		if err := errors.Join(err, port.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.readAll(); err != nil || string(got) != "greeting" {
			t.Fatalf("the caller received %q, %v", got, err)
		}
		if err := errors.Join(c.send([]byte("rest")), c.CloseSend()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(port); err != nil || string(got) != "rest" {
			t.Errorf("the port received %q, %v", got, err)
		}
		if _, err := c.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the call ended with %v", err)
		}
	})
}

func TestConnectPort_Reset_IsErrorOnOtherSide(t *testing.T) {
	t.Parallel()
	t.Run("by the port", func(t *testing.T) {
		_, c, port := portPair(t)
		_, err := port.Write([]byte("part"))
		if err := errors.Join(err, port.SetLinger(0), port.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := c.readAll()
		expectFailure(t, err, codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_RESET)
		if !bytes.HasPrefix([]byte("part"), got) {
			t.Errorf("the caller received %q", got)
		}
	})
	t.Run("by the caller", func(t *testing.T) {
		_, c, port := portPair(t)
		if err := c.send([]byte("part")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(port, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		c.cancel(errors.New("the caller goes away"))
		if _, err := port.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the port got %v", err)
		}
	})
	t.Run("after its answer", func(t *testing.T) {
		// The port answers and closes while the caller still sends: the answer arrives, and then
		// an error.
		_, c, port := portPair(t)
		if err := c.send([]byte("unread")); err != nil {
			t.Fatal(err)
		}
		if _, err := port.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if m, err := c.Recv(); err != nil || string(m.GetData()) != "answer" {
			t.Fatalf("the caller received %v, %v", m, err)
		}
		if _, err := io.ReadFull(port, make([]byte, 1)); err != nil { // the rest has arrived, too
			t.Fatal(err)
		}
		_ = port.Close() // with unread data: a reset
		_, err := c.readAll()
		expectFailure(t, err, codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_RESET)
	})
	t.Run("by the server", func(t *testing.T) {
		f, c, port := portPair(t)
		f.server.EndWatches()
		_, err := c.readAll()
		expectFailure(t, err, codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING)
		if _, err := port.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the port got %v", err)
		}
	})
}

func TestConnectPort_Refusals(t *testing.T) {
	t.Parallel()
	own := listenOnLoopback(t)
	f := newFixture(t, withPorts(func(o *ports.Options) {
		o.Rules.RefuseLocal(uint16(portOf(own)))
		o.PerOwner = 2
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server answers")
		}}
	}, "loopback", "192.0.2.1:*", "no-such-host.invalid:80"))
	field, denied := execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, execwirev1.ErrorReason_ERROR_REASON_PORT_DENIED
	for _, tt := range []struct {
		connect *execwirev1.PortConnect
		code    codes.Code
		reason  execwirev1.ErrorReason
	}{
		{&execwirev1.PortConnect{}, codes.InvalidArgument, field},
		{&execwirev1.PortConnect{Port: 1 << 16}, codes.InvalidArgument, field},
		{&execwirev1.PortConnect{Port: 1, Host: string(make([]byte, 256))}, codes.InvalidArgument, field},
		{&execwirev1.PortConnect{Port: 1, SessionId: string(make([]byte, 257))}, codes.InvalidArgument, field},
		{&execwirev1.PortConnect{Port: uint32(testport.Reserve(t))}, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED},
		{&execwirev1.PortConnect{Port: 80, Host: "no-such-host.invalid"}, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_UNREACHABLE},
		{&execwirev1.PortConnect{Port: 80, Host: "198.51.100.1"}, codes.PermissionDenied, denied},
		{&execwirev1.PortConnect{Port: 80, Host: "169.254.169.254"}, codes.PermissionDenied, denied},
	} {
		_, err := f.connect(tt.connect)
		if err == nil {
			t.Fatalf("%v: accepted", tt.connect)
		}
		expectFailure(t, err, tt.code, tt.reason)
	}
	// Every alias of an own listener.
	hosts := []string{"", "127.0.0.1", "127.0.0.2", "localhost", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "64:ff9b::127.0.0.1"}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range interfaces {
		hosts = append(hosts, a.(*net.IPNet).IP.String())
	}
	for _, host := range hosts {
		_, err := f.connect(&execwirev1.PortConnect{Host: host, Port: portOf(own)})
		if err == nil {
			t.Fatalf("host %q reaches the server's own listener", host)
		}
		expectFailure(t, err, codes.PermissionDenied, denied)
	}

	listener := listenOnLoopback(t)
	first, err := f.connect(&execwirev1.PortConnect{Port: portOf(listener)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.connect(&execwirev1.PortConnect{Port: portOf(listener)}); err != nil {
		t.Fatal(err)
	}
	_, err = f.connect(&execwirev1.PortConnect{Port: portOf(listener)})
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_CONNECTIONS)
	first.cancel(nil)
	for {
		if _, err = f.connect(&execwirev1.PortConnect{Port: portOf(listener)}); err == nil {
			break
		}
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_CONNECTIONS)
	}
}

func TestConnectPort_Timeout_IsReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withPorts(func(o *ports.Options) {
		o.Timeout = time.Millisecond
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	}, "slow.test:80"))
	_, err := f.connect(&execwirev1.PortConnect{Host: "slow.test", Port: 80})
	expectFailure(t, err, codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECT_TIMED_OUT)
}

func TestConnectPort_Messages_OutOfOrder_AreRefused(t *testing.T) {
	t.Parallel()
	f, c, port := portPair(t)
	if err := c.Send(&execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Connect{Connect: &execwirev1.PortConnect{Port: 1}}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.readAll()
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
	if _, err := port.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the port got %v", err)
	}
	stream, err := f.ports.ConnectPort(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.ConnectPortRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
}
