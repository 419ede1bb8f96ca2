package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/inproc"
)

const someParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traceRecorder records the traces that a server receives, with the last part of
// the method.
type traceRecorder struct {
	mu    sync.Mutex
	calls []string
}

func (h *traceRecorder) note(ctx context.Context, method string) {
	md, _ := metadata.FromIncomingContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("%s %s %s", method[strings.LastIndexByte(method, '/')+1:], md.Get("traceparent"), md.Get("tracestate")))
}

func (h *traceRecorder) drain() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.calls = nil }()
	return h.calls
}

func (h *traceRecorder) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	h.note(ctx, info.FullMethod)
	return handler(ctx, req)
}

func (h *traceRecorder) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	h.note(stream.Context(), info.FullMethod)
	return handler(srv, stream)
}

// tracingServers runs a test with servers in this program and behind a connection
// that record traces.
func tracingServers(t *testing.T, run func(t *testing.T, h *traceRecorder, c *testServer)) {
	scripted := func() *scriptedServer {
		return &scriptedServer{feed: make(chan *execwirev1.AttachSessionResponse), end: make(chan error, 1), last: map[string]uint64{}}
	}
	register := func(to grpc.ServiceRegistrar, s *scriptedServer) {
		execwirev1.RegisterSessionServiceServer(to, s)
		execwirev1.RegisterProcessServiceServer(to, s)
		execwirev1.RegisterEnvironmentServiceServer(to, s)
	}
	t.Run("in process", func(t *testing.T) {
		h := new(traceRecorder)
		channel := inproc.New(inproc.WithUnaryInterceptors(h.unary), inproc.WithStreamInterceptors(h.stream))
		register(channel, scripted())
		t.Cleanup(channel.Close)
		run(t, h, &testServer{t: t, channel: channel})
	})
	t.Run("over a wire", func(t *testing.T) {
		h := new(traceRecorder)
		over := grpc.NewServer(grpc.UnaryInterceptor(h.unary), grpc.StreamInterceptor(h.stream))
		register(over, scripted())
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() { _ = over.Serve(listener) })
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = conn.Close()
			over.Stop()
			serving.Wait()
		})
		run(t, h, &testServer{t: t, channel: conn})
	})
}

// askTraced sends a request with a trace and waits for its response.
func (cl *client) askTraced(id int, method string, params any, trace map[string]any) frame {
	cl.t.Helper()
	cl.send(toJSON(map[string]any{"id": id, "method": method, "params": params, "trace": trace}))
	answer, _ := cl.wait("the response", func(f frame) bool { return string(f.ID) == fmt.Sprint(id) })
	return answer
}

// Each call has the trace of its own request.
func TestTrace_IsPassedToServer(t *testing.T) {
	tracingServers(t, func(t *testing.T, h *traceRecorder, c *testServer) {
		cl := c.connect()
		place := map[string]any{"traceparent": someParent, "tracestate": "a=1, b=2"}
		trace := " [" + someParent + "] [a=1,b=2]"
		if a := cl.askTraced(101, "initialize", map[string]any{"clientName": "c"}, place); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
		cl.notify("initialized", nil)
		if got := h.drain(); !slices.Equal(got, []string{"GetEnvironment" + trace, "AttachSession" + trace}) {
			t.Errorf("initialize sent the server %q", got)
		}
		cl.askTraced(102, "process/read", map[string]any{"processId": "p"}, place)
		for _, call := range h.drain() {
			if !strings.HasSuffix(call, trace) {
				t.Errorf("a read sent the server %q", call)
			}
		}
		cl.must("process/read", map[string]any{"processId": "p"})
		for _, call := range h.drain() {
			if !strings.HasSuffix(call, " [] []") {
				t.Errorf("a read without a trace sent the server %q", call)
			}
		}
	})
}

// The request is carried out.
func TestTrace_Invalid_IsDropped(t *testing.T) {
	tracingServers(t, func(t *testing.T, h *traceRecorder, c *testServer) {
		cl, _ := c.attach("")
		h.drain()
		long := strings.Repeat("x", 1<<20)
		for i, tc := range []struct {
			trace map[string]any
			want  string // what the server receives
		}{
			{map[string]any{}, " [] []"},
			{map[string]any{"traceparent": nil, "tracestate": nil}, " [] []"},
			{map[string]any{"tracestate": "a=1"}, " [] []"},
			{map[string]any{"traceparent": "", "tracestate": "a=1"}, " [] []"},
			{map[string]any{"traceparent": someParent + "\r\nauthorization: me"}, " [] []"},
			{map[string]any{"traceparent": someParent[:10] + "\x00" + someParent[11:]}, " [] []"},
			{map[string]any{"traceparent": long, "tracestate": long}, " [] []"},
			{map[string]any{"traceparent": "cc" + someParent[2:] + "-" + long}, " [" + someParent + "] []"},
			{map[string]any{"traceparent": someParent, "tracestate": long}, " [" + someParent + "] []"},
			{map[string]any{"traceparent": someParent, "tracestate": "a=" + long}, " [" + someParent + "] []"},
			{map[string]any{"traceparent": someParent, "tracestate": "a=1\n"}, " [" + someParent + "] []"},
			{map[string]any{"traceparent": someParent, "tracestate": "a=\t1"}, " [" + someParent + "] []"},
			{map[string]any{"traceparent": someParent, "tracestate": "a=\u00e4"}, " [" + someParent + "] []"},
		} {
			if a := cl.askTraced(100+i, "process/read", map[string]any{"processId": "p"}, tc.trace); a.Error != nil {
				t.Errorf("%.200s: %+v", toJSON(tc.trace), a.Error)
			}
			calls := h.drain()
			for _, call := range calls {
				if !strings.HasSuffix(call, tc.want) {
					t.Errorf("%.200s: the server received %.300q", toJSON(tc.trace), call)
				}
			}
			if len(calls) == 0 {
				t.Errorf("%.200s: the server was not called", toJSON(tc.trace))
			}
		}
	})
}

// The gateway logs requests that panic.
func TestTrace_IsLogged(t *testing.T) {
	for trace, want := range map[string]string{
		someParent:          "trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331",
		someParent + "evil": "",
	} {
		srv := newTestServer(t)
		srv.channel = &faulty{ClientConnInterface: srv.channel, invoke: "StartProcess"}
		var log bytes.Buffer
		cl, _ := srv.attach("", func(_ *pipe, c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		cl.send(toJSON(map[string]any{"id": 9, "method": "process/start", "params": startOf("p", "true"),
			"trace": map[string]any{"traceparent": trace}}))
		_ = cl.ended() // everything is logged by now
		line, _, _ := strings.Cut(log.String(), "\n")
		if !strings.Contains(line, "panicked") || !strings.Contains(line, want) || strings.Contains(line, "trace_id") != (want != "") || strings.Contains(line, "evil") {
			t.Errorf("the log is %.400s", log.String())
		}
	}
}
