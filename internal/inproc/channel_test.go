package inproc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/inproc"
)

// serve returns a channel with one stub, closed with the test.
func serve(t testing.TB, s *stub, opts ...inproc.Option) *inproc.Channel {
	ch := inproc.New(opts...)
	ch.RegisterService(&stubDesc, s)
	t.Cleanup(ch.Close)
	return ch
}

func TestChannel_GeneratedClients(t *testing.T) {
	ch := inproc.New()
	t.Cleanup(ch.Close)
	healthpb.RegisterHealthServer(ch, health.NewServer())

	got, err := healthpb.NewHealthClient(ch).Check(guarded(t), &healthpb.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Check = %v, %v, want SERVING", got, err)
	}
	ctx, cancel := context.WithCancel(guarded(t))
	defer cancel()
	stream, err := healthpb.NewHealthClient(ch).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Watch = %v, %v, want SERVING", got, err)
	}
}

func TestRegisterService_Twice_Panics(t *testing.T) {
	ch := serve(t, &stub{})
	defer func() {
		if recover() == nil {
			t.Error("a second registration of the same service did not panic")
		}
	}()
	ch.RegisterService(&stubDesc, &stub{})
}

func TestRegisterService_WrongType_Panics(t *testing.T) {
	ch := inproc.New()
	t.Cleanup(ch.Close)
	defer func() {
		if recover() == nil {
			t.Error("an implementation of another service did not panic")
		}
	}()
	ch.RegisterService(&healthpb.Health_ServiceDesc, &stub{})
}

type key struct{}

// Over a network only deadline and metadata are transferred; an interceptor that
// used the caller's context values would fail there.
func TestContext_ValuesAreNotTransferred(t *testing.T) {
	ch := serve(t, &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
		if v := ctx.Value(key{}); v != nil {
			t.Errorf("the handler sees the caller's value %v", v)
		}
		return txt(""), nil
	}})
	ctx := context.WithValue(guarded(t), key{}, "secret")
	if err := ch.Invoke(ctx, unaryMethod, txt(""), new(text)); err != nil {
		t.Fatal(err)
	}
}

type badge struct{ credentials.CommonAuthInfo }

func (badge) AuthType() string { return "badge" }

func TestPeer_AuthInfo(t *testing.T) {
	ch := serve(t, &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
		method, _ := grpc.Method(ctx)
		if method != unaryMethod {
			t.Errorf("method = %q, want %q", method, unaryMethod)
		}
		p, ok := peer.FromContext(ctx)
		if !ok {
			return nil, status.Error(codes.Unauthenticated, "no peer")
		}
		return txt(p.Addr.Network() + " " + p.AuthInfo.AuthType()), nil
	}})
	out := new(text)
	if err := ch.Invoke(guarded(t), unaryMethod, txt(""), out); err != nil {
		t.Fatal(err)
	}
	if want := "inproc inproc"; out.GetValue() != want {
		t.Errorf("the handler sees %q, want %q", out.GetValue(), want)
	}
}

// A channel carries the calls of many callers, and distinguishes them.
func TestAs_AuthInfo(t *testing.T) {
	who := func(ctx context.Context) string {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return "nobody"
		}
		return p.AuthInfo.AuthType()
	}
	ch := serve(t, &stub{
		unary:  func(ctx context.Context, _ *text) (*text, error) { return txt(who(ctx)), nil },
		stream: func(ss grpc.ServerStream) error { return ss.SendMsg(txt(who(ss.Context()))) },
	})
	for want, conn := range map[string]grpc.ClientConnInterface{"inproc": ch, "badge": ch.As(badge{})} {
		out := new(text)
		if err := conn.Invoke(guarded(t), unaryMethod, txt(""), out); err != nil || out.GetValue() != want {
			t.Errorf("a unary call is made by %q, %v, want %q", out.GetValue(), err, want)
		}
		stream, err := conn.NewStream(guarded(t), &grpc.StreamDesc{ServerStreams: true}, serverMethod)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(out); err != nil || out.GetValue() != want {
			t.Errorf("a stream is opened by %q, %v, want %q", out.GetValue(), err, want)
		}
		if err := stream.RecvMsg(out); err != io.EOF {
			t.Errorf("the stream ends with %v", err)
		}
	}
	as := ch.As(badge{})
	ch.Close()
	if stream, err := as.NewStream(guarded(t), &grpc.StreamDesc{ServerStreams: true}, serverMethod); status.Code(err) != codes.Unavailable || stream != nil {
		t.Errorf("over a closed channel: %v, %v", stream, err)
	}
}

// until returns a stub whose handlers report the cause of their context's end.
func until(causes chan<- error) *stub {
	return &stub{
		unary: func(ctx context.Context, _ *text) (*text, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		},
		stream: func(ss grpc.ServerStream) error {
			<-ss.Context().Done()
			causes <- context.Cause(ss.Context())
			return nil
		},
	}
}

func TestCancel_Cause(t *testing.T) {
	causes := make(chan error, 1)
	ch := serve(t, until(causes))
	why := errors.New("laptop closed")
	ctx, cancel := context.WithCancelCause(guarded(t))
	open(t, ctx, ch, bidiMethod)
	cancel(why)
	cause := <-causes
	for _, want := range []error{inproc.ErrCallerGone, why, context.Canceled} {
		if !errors.Is(cause, want) {
			t.Errorf("cause = %v, want it to be %v", cause, want)
		}
	}
}

func TestDeadline_AppliesToHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		ch := serve(t, until(causes))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("stays with the caller"))
		defer cancel()
		err := ch.Invoke(ctx, unaryMethod, txt(""), new(text))
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("Invoke = %v, want DeadlineExceeded", err)
		}
		if cause := <-causes; cause != context.DeadlineExceeded {
			t.Errorf("cause = %v, want %v", cause, context.DeadlineExceeded)
		}
	})
}

// Over a network it is random whether a handler reads requests that were queued
// when the call ended; here it never does, so that a canceled call stops at once.
func TestCancel_DiscardsQueuedRequests(t *testing.T) {
	for range 50 { // a select of either would pass sometimes
		var got string
		gone := make(chan struct{})
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			defer close(gone)
			<-ss.Context().Done()
			got = recv(ss)
			return nil
		}})
		ctx, cancel := context.WithCancel(guarded(t))
		cs := open(t, ctx, ch, clientMethod)
		if err := cs.SendMsg(txt("queued")); err != nil {
			t.Fatal(err)
		}
		cancel()
		wait(t, "end of the handler", gone)
		if want := `Canceled "context canceled"`; got != want {
			t.Fatalf("recv after the end of the call = %s, want %s", got, want)
		}
	}
}

func TestReturn_Cause(t *testing.T) {
	var handler context.Context
	ch := serve(t, &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
		handler = ctx
		return txt(""), nil
	}})
	ctx, cancel := context.WithTimeout(guarded(t), time.Hour)
	defer cancel()
	if err := ch.Invoke(ctx, unaryMethod, txt(""), new(text)); err != nil {
		t.Fatal(err)
	}
	ch.Close() // ensures that the handler has returned
	if cause := context.Cause(handler); cause != inproc.ErrHandlerReturned {
		t.Errorf("cause = %v, want %v", cause, inproc.ErrHandlerReturned)
	}
}
