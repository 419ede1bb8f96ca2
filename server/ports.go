package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"slices"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/ports"
)

// portService implements execwire.v1.PortService; the proto documents its methods.
type portService struct {
	execwirev1.UnsafePortServiceServer
	server *Server
}

var _ execwirev1.PortServiceServer = (*portService)(nil)

// processes returns those whose ports a caller asks for. until is closed when there will be no more
// ports, and nil if that is never.
func (s *portService) processes(ctx context.Context, sessionID, processID string) (of ports.Processes, until <-chan struct{}, err error) {
	if processID != "" {
		p, err := s.server.find(ctx, sessionID, processID)
		if err != nil {
			return nil, nil, err
		}
		list := []ports.Process{{ID: processID, Process: p.Process}}
		return func() ([]ports.Process, error) { return list, nil }, p.Closed(), nil
	}
	of = func() ([]ports.Process, error) {
		// Looked up again each time: a session may end, and so may a grant.
		session, err := s.server.open(ctx, sessionID)
		if err != nil {
			return nil, err
		}
		all, _ := session.Processes("", math.MaxInt)
		list := make([]ports.Process, 0, len(all))
		for _, p := range all {
			list = append(list, ports.Process{ID: p.ID(), Process: p.Process})
		}
		return list, nil
	}
	_, err = s.server.open(ctx, sessionID)
	return of, nil, err
}

// ListPorts implements the RPC.
func (s *portService) ListPorts(ctx context.Context, req *execwirev1.ListPortsRequest) (*execwirev1.ListPortsResponse, error) {
	of, _, err := s.processes(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	found, truncated, err := ports.List(of)
	if err != nil {
		return nil, err
	}
	return &execwirev1.ListPortsResponse{Ports: toPorts(found), Truncated: truncated}, nil
}

// WatchPorts implements the RPC.
func (s *portService) WatchPorts(req *execwirev1.WatchPortsRequest, stream grpc.ServerStreamingServer[execwirev1.WatchPortsResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	of, until, err := s.processes(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return err
	}
	watch := s.server.ports.Watch(of, until)
	defer watch.Close()
	for began := false; ; began = true {
		change, err := watch.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		// In two messages, because each may be large.
		closed := &execwirev1.WatchPortsResponse{Closed: toPorts(change.Closed), Truncated: change.Truncated}
		opened := &execwirev1.WatchPortsResponse{Opened: toPorts(change.Opened), Truncated: change.Truncated}
		if len(change.Closed) > 0 {
			err = stream.Send(closed)
		}
		if err == nil && (len(change.Opened) > 0 || !began) {
			err = stream.Send(opened)
		}
		if err != nil {
			return err
		}
	}
}

func toPorts(list []ports.Port) []*execwirev1.Port {
	messages := make([]*execwirev1.Port, 0, len(list))
	for _, p := range list {
		messages = append(messages, &execwirev1.Port{
			Address: p.Addr.Addr().String(), Port: uint32(p.Addr.Port()),
			ProcessId: p.ProcessID, Pid: int32(p.PID), Program: toValidUTF8(p.Program),
		})
	}
	return messages
}

// connectStream is the server's side of a ConnectPort stream type.
type connectStream = grpc.BidiStreamingServer[execwirev1.ConnectPortRequest, execwirev1.ConnectPortResponse]

// ConnectPort implements the RPC. The handler passes what the port sends, and one goroutine what the
// caller sends, so that each direction continues without the other.
func (s *portService) ConnectPort(stream connectStream) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	first, err := receiveFirst(stream, "the stream ended before connect or accept")
	if err != nil {
		return err
	}
	var conn *ports.Conn
	switch m := first.GetMessage().(type) {
	case *execwirev1.ConnectPortRequest_Connect:
		conn, err = s.dial(ctx, m.Connect)
	case *execwirev1.ConnectPortRequest_Accept:
		conn, err = s.accept(ctx, m.Accept)
	default:
		err = unexpectedMessage("the first message must be connect or accept")
	}
	if err != nil {
		return err
	}
	t := &tunnel{stream: stream, conn: conn, received: make(chan error, 1)}
	return t.serve(ctx, s.server)
}

func (s *portService) dial(ctx context.Context, m *execwirev1.PortConnect) (*ports.Conn, error) {
	of, _, err := s.processes(ctx, m.GetSessionId(), "")
	if err != nil {
		return nil, err
	}
	return s.server.cfg.Ports.Dial(ctx, ports.Target{Owner: caller(ctx), Processes: of, Host: m.GetHost(), Port: uint16(m.GetPort())})
}

func (s *portService) accept(ctx context.Context, m *execwirev1.PortAccept) (*ports.Conn, error) {
	of, err := s.server.open(ctx, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	listeners, ok := s.server.listeners.Find(of)
	if !ok {
		return nil, &ports.Error{Kind: ports.ConnectionNotFound, Target: m.GetConnectionId()}
	}
	return listeners.Accept(m.GetConnectionId())
}

// ListenPort implements the RPC.
func (s *portService) ListenPort(req *execwirev1.ListenPortRequest, stream grpc.ServerStreamingServer[execwirev1.ListenPortResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	owner, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return err
	}
	addr, _ := netip.ParseAddr(cmp.Or(req.GetAddress(), "127.0.0.1")) // it is valid
	var listener *ports.Listener
	err = s.server.listeners.Add(owner, func(all *ports.Listeners) (err error) {
		listener, err = all.Listen(netip.AddrPortFrom(addr, uint16(req.GetPort())), req.GetListenerId())
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close(nil)
	// The port is closed at once, also while the caller does not read.
	stop := context.AfterFunc(ctx, func() { listener.Close(context.Cause(ctx)) })
	defer stop()
	err = stream.Send(&execwirev1.ListenPortResponse{Message: &execwirev1.ListenPortResponse_Listening{
		Listening: &execwirev1.PortListening{Address: listener.Addr().String()}}})
	for err == nil {
		var a ports.Arrival
		if a, err = listener.Next(); err != nil {
			break
		}
		err = stream.Send(&execwirev1.ListenPortResponse{Message: &execwirev1.ListenPortResponse_Arrival{
			Arrival: &execwirev1.PortArrival{ConnectionId: a.ID, PeerAddress: a.Peer.String()}}})
	}
	if errors.Is(err, ports.ErrListenersClosed) { // the session is over, and Add says why
		return s.server.listeners.Add(owner, func(*ports.Listeners) error { return err })
	}
	return err
}

// tunnel is a ConnectPort stream and its connection.
type tunnel struct {
	stream   connectStream
	conn     *ports.Conn
	received chan error // how the caller's direction has ended, nil for in order
}

// serve passes bytes until both directions have ended in order, or one has failed.
func (t *tunnel) serve(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Whatever ends the call before both directions have ended is a reset for the port.
	stop := context.AfterFunc(ctx, t.conn.Reset)
	defer func() {
		if stop() {
			t.conn.Reset()
		}
	}()
	connected := &execwirev1.ConnectPortResponse{Message: &execwirev1.ConnectPortResponse_Connected{
		Connected: &execwirev1.PortConnected{Address: t.conn.Address().String()}}}
	if err := t.stream.Send(connected); err != nil {
		return err
	}
	// Recv returns only after the handler, so the server waits for this goroutine, not the handler.
	s.receivers.Go(func() {
		err := t.receive()
		if _, broken := errors.AsType[*ports.Error](err); err != nil && !broken {
			cancel(err)
			return
		}
		t.received <- err // what the port has sent before it broke is still passed on
	})
	err := t.send(ctx)
	if err == nil {
		select {
		case err = <-t.received:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // err may be its consequence
		return context.Cause(ctx)
	}
	if err == nil {
		t.conn.Close()
	}
	return err
}

// receive passes what the caller sends, until it half-closes.
func (t *tunnel) receive() error {
	err := receiveRest(t.stream, func(m *execwirev1.ConnectPortRequest) error {
		if _, ok := m.GetMessage().(*execwirev1.ConnectPortRequest_Data); !ok {
			return unexpectedMessage("only data can follow connect or accept")
		}
		return t.conn.Write(m.GetData())
	})
	if errors.Is(err, io.EOF) {
		return t.conn.CloseWrite()
	}
	return err
}

// send passes what the port sends, and its end.
func (t *tunnel) send(ctx context.Context) error {
	buffers := newDownloadBuffers(ctx)
	for {
		piece := buffers.next()
		n, err := t.conn.Read(piece)
		if n > 0 {
			data := piece[:n]
			if len(buffers.ring) == 0 && n <= len(piece)/2 {
				data = slices.Clone(data) // the receiver keeps it
			}
			if err := t.stream.Send(&execwirev1.ConnectPortResponse{Message: &execwirev1.ConnectPortResponse_Data{Data: data}}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return t.stream.Send(&execwirev1.ConnectPortResponse{Message: &execwirev1.ConnectPortResponse_End{End: &execwirev1.PortEnd{}}})
		case err != nil:
			return err
		}
	}
}

// portErrors translates the kinds of package ports; a test proves it complete.
var portErrors = map[ports.Kind]translation{
	ports.Denied:             {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PORT_DENIED},
	ports.ConnectionRefused:  {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED},
	ports.TimedOut:           {codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECT_TIMED_OUT},
	ports.Unreachable:        {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_UNREACHABLE},
	ports.ConnectionReset:    {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_RESET},
	ports.TooManyConnections: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_CONNECTIONS},
	ports.ListenDenied:       {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PORT_LISTEN_DENIED},
	ports.InUse:              {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE},
	ports.AddressUnavailable: {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PORT_ADDRESS_UNAVAILABLE},
	ports.ListenFailed:       {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT},
	ports.TooManyListeners:   {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PORT_LISTENERS},
	ports.ConnectionNotFound: {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_NOT_FOUND},
	ports.TakenOver:          {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PORT_LISTENER_TAKEN_OVER},
}

func fromPort(err *ports.Error) error {
	f := translate(portErrors, err.Kind).failure(err.Error())
	if err.Err != nil {
		f.set("cause", err.Err.Error())
	}
	if err.Address.IsValid() {
		f.set("address", err.Address.String())
	}
	f.setErrno(err.Err)
	if q, ok := portQuotas[err.Kind]; ok {
		if err.Kind == ports.ListenFailed {
			errno, _ := errors.AsType[syscall.Errno](err.Err)
			q = systemQuota(processLimits, errno)
		}
		f.limit(q, int64(err.Limit))
	}
	return f.status()
}
