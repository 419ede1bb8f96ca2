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

// heard is what a core was told of traces, by the last part of the method.
type heard struct {
	mu    sync.Mutex
	calls []string
}

func (h *heard) note(ctx context.Context, method string) {
	md, _ := metadata.FromIncomingContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("%s %s %s", method[strings.LastIndexByte(method, '/')+1:], md.Get("traceparent"), md.Get("tracestate")))
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.calls = nil }()
	return h.calls
}

func (h *heard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	h.note(ctx, info.FullMethod)
	return handler(ctx, req)
}

func (h *heard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	h.note(stream.Context(), info.FullMethod)
	return handler(srv, stream)
}

// listeningCores are cores in this program and beyond a wire that note what they
// are told of traces.
func listeningCores(t *testing.T, run func(t *testing.T, h *heard, c *core)) {
	scripted := func() *scriptedCore {
		return &scriptedCore{feed: make(chan *execwirev1.AttachSessionResponse), end: make(chan error, 1), last: map[string]uint64{}}
	}
	register := func(to grpc.ServiceRegistrar, s *scriptedCore) {
		execwirev1.RegisterSessionServiceServer(to, s)
		execwirev1.RegisterProcessServiceServer(to, s)
		execwirev1.RegisterEnvironmentServiceServer(to, s)
	}
	t.Run("in process", func(t *testing.T) {
		h := new(heard)
		channel := inproc.New(inproc.WithUnaryInterceptors(h.unary), inproc.WithStreamInterceptors(h.stream))
		register(channel, scripted())
		t.Cleanup(channel.Close)
		run(t, h, &core{t: t, channel: channel})
	})
	t.Run("over a wire", func(t *testing.T) {
		h := new(heard)
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
		run(t, h, &core{t: t, channel: conn})
	})
}

// askTraced sends a request with a trace and waits for its answer.
func (cl *client) askTraced(id int, method string, params any, trace map[string]any) frame {
	cl.t.Helper()
	cl.send(toJSON(map[string]any{"id": id, "method": method, "params": params, "trace": trace}))
	answer, _ := cl.wait("answer", func(f frame) bool { return string(f.ID) == fmt.Sprint(id) })
	return answer
}

// TestTheCoreIsToldOfTheTrace has each call carry the trace of its request, and
// none of another.
func TestTheCoreIsToldOfTheTrace(t *testing.T) {
	listeningCores(t, func(t *testing.T, h *heard, c *core) {
		cl := c.connect()
		place := map[string]any{"traceparent": someParent, "tracestate": "a=1, b=2"}
		told := " [" + someParent + "] [a=1,b=2]"
		if a := cl.askTraced(101, "initialize", map[string]any{"clientName": "c"}, place); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
		cl.notify("initialized", nil)
		if got := h.take(); !slices.Equal(got, []string{"GetEnvironment" + told, "AttachSession" + told}) {
			t.Errorf("initialize told the core %q", got)
		}
		cl.askTraced(102, "process/read", map[string]any{"processId": "p"}, place)
		for _, call := range h.take() {
			if !strings.HasSuffix(call, told) {
				t.Errorf("a read told the core %q", call)
			}
		}
		cl.must("process/read", map[string]any{"processId": "p"})
		for _, call := range h.take() {
			if !strings.HasSuffix(call, " [] []") {
				t.Errorf("a read without a trace told the core %q", call)
			}
		}
	})
}

// TestAHostileTraceIsDropped: the request is carried out all the same.
func TestAHostileTraceIsDropped(t *testing.T) {
	listeningCores(t, func(t *testing.T, h *heard, c *core) {
		cl, _ := c.attach("")
		h.take()
		long := strings.Repeat("x", 1<<20)
		for i, tc := range []struct {
			trace map[string]any
			want  string // of what the core is told
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
			calls := h.take()
			for _, call := range calls {
				if !strings.HasSuffix(call, tc.want) {
					t.Errorf("%.200s told the core %.300q", toJSON(tc.trace), call)
				}
			}
			if len(calls) == 0 {
				t.Errorf("%.200s: the core was not asked", toJSON(tc.trace))
			}
		}
	})
}

// TestTheLogOfARequestSaysItsTrace has a request panic, which is what the gateway
// logs of one.
func TestTheLogOfARequestSaysItsTrace(t *testing.T) {
	for trace, want := range map[string]string{
		someParent:          "trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331",
		someParent + "evil": "",
	} {
		core := newCore(t)
		core.channel = &faulty{ClientConnInterface: core.channel, invoke: "StartProcess"}
		var log bytes.Buffer
		cl, _ := core.attach("", func(_ *pipe, c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		cl.send(toJSON(map[string]any{"id": 9, "method": "process/start", "params": startOf("p", "true"),
			"trace": map[string]any{"traceparent": trace}}))
		_ = cl.ended() // after which nothing more is logged
		line, _, _ := strings.Cut(log.String(), "\n")
		if !strings.Contains(line, "panicked") || !strings.Contains(line, want) || strings.Contains(line, "trace_id") != (want != "") || strings.Contains(line, "evil") {
			t.Errorf("the log says %.400s", log.String())
		}
	}
}
