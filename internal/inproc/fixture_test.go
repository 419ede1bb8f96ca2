package inproc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// hangGuard bounds operations that could hang.
const hangGuard = 30 * time.Second

const (
	unaryMethod  = "/test.Stub/Unary"
	serverMethod = "/test.Stub/Server"
	clientMethod = "/test.Stub/Client"
	bidiMethod   = "/test.Stub/Bidi"
)

type text = wrapperspb.StringValue

func txt(s string) *text { return wrapperspb.String(s) }

// stub implements a hand-written service with the functions of a scenario.
type stub struct {
	unary  func(context.Context, *text) (*text, error)
	stream func(grpc.ServerStream) error
}

var stubDesc = grpc.ServiceDesc{
	ServiceName: "test.Stub",
	HandlerType: (*any)(nil),
	Metadata:    "stub.proto",
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(text)
			if err := dec(in); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) { return srv.(*stub).unary(ctx, req.(*text)) }
			if interceptor == nil {
				return handler(ctx, in)
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: unaryMethod}, handler)
		},
	}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Server", Handler: stubStream, ServerStreams: true},
		{StreamName: "Client", Handler: stubStream, ClientStreams: true},
		{StreamName: "Bidi", Handler: stubStream, ServerStreams: true, ClientStreams: true},
	},
}

func stubStream(srv any, ss grpc.ServerStream) error { return srv.(*stub).stream(ss) }

// chain is the server interceptors of a scenario.
type chain struct {
	unary  []grpc.UnaryServerInterceptor
	stream []grpc.StreamServerInterceptor
}

// carrier connects a client to a stub and closes everything with the test.
type carrier struct {
	name    string
	connect func(t testing.TB, s *stub, with chain) grpc.ClientConnInterface
}

var carriers = []carrier{{"wire", overWire}, {"inproc", overChannel}}

func overChannel(t testing.TB, s *stub, with chain) grpc.ClientConnInterface {
	ch := inproc.New(inproc.WithUnaryInterceptors(with.unary...), inproc.WithStreamInterceptors(with.stream...))
	ch.RegisterService(&stubDesc, s)
	t.Cleanup(ch.Close)
	return ch
}

func overWire(t testing.TB, s *stub, with chain) grpc.ClientConnInterface {
	lis := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(with.unary...), grpc.ChainStreamInterceptor(with.stream...))
	server.RegisterService(&stubDesc, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	conn, err := grpc.NewClient("passthrough:///stub",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("failed to make a client: %v", err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		wg.Wait()
	})
	return conn
}

// journal records what one end of a call observed, in order.
type journal struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) taken() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// show formats the result of a stream operation.
func show(err error) string {
	switch err {
	case nil:
		return "ok"
	case io.EOF:
		return "EOF"
	}
	if st, ok := status.FromError(err); ok {
		return fmt.Sprintf("%v %q", st.Code(), st.Message())
	}
	return fmt.Sprintf("%T %v", err, err)
}

// showMD formats metadata without the keys that a transport adds.
func showMD(md metadata.MD) string {
	if md == nil {
		return "none"
	}
	var keys []string
	for k := range md {
		switch k {
		case "content-type", "user-agent", ":authority", "grpc-accept-encoding", "grpc-status-details-bin":
		default:
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%q ", k, md[k])
	}
	return "{" + strings.TrimSpace(b.String()) + "}"
}

// recv receives one message and formats it or the error.
func recv(s interface{ RecvMsg(any) error }) string {
	m := new(text)
	if err := s.RecvMsg(m); err != nil {
		return show(err)
	}
	return fmt.Sprintf("%q", m.GetValue())
}

func open(t testing.TB, ctx context.Context, cc grpc.ClientConnInterface, method string) grpc.ClientStream {
	t.Helper()
	desc := &grpc.StreamDesc{ServerStreams: method == serverMethod || method == bidiMethod, ClientStreams: method == clientMethod || method == bidiMethod}
	cs, err := cc.NewStream(ctx, desc, method)
	if err != nil {
		t.Fatalf("failed to open %s: %v", method, err)
	}
	return cs
}

func guarded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	t.Cleanup(cancel)
	return ctx
}

// wait waits for an event that must happen.
func wait(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hangGuard):
		t.Errorf("no %s within %v", what, hangGuard)
	}
}
