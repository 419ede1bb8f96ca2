package operations

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/integration/harness"
)

// collector receives spans by OTLP.
type collector struct {
	url string

	mu    sync.Mutex
	spans []span
	raw   strings.Builder // everything that was received
}

// span is a received span.
type span struct {
	*tracepb.Span
	service string
}

// newCollector serves the RPC of a collector to calls with a header.
func newCollector(t *testing.T, header string) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{url: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := &collectorpb.ExportTraceServiceRequest{}
			if err := decode(request); err != nil {
				return nil, err
			}
			if got := metadata.ValueFromIncomingContext(ctx, "authorization"); !slices.Equal(got, []string{header}) {
				return nil, fmt.Errorf("the header is %q", got)
			}
			c.add(request)
			return &collectorpb.ExportTraceServiceResponse{}, nil
		}}},
	}, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return c
}

func (c *collector) add(request *collectorpb.ExportTraceServiceRequest) {
	encoded, _ := proto.Marshal(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(encoded)
	for _, resource := range request.GetResourceSpans() {
		service := ""
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				service = attribute.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span{s, service})
			}
		}
	}
}

// await waits for the first span of a trace with this name.
func (c *collector) await(t *testing.T, trace, service, name string) (found span) {
	t.Helper()
	harness.Eventually(t, service+" sends a span "+name, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if hex.EncodeToString(s.GetTraceId()) == trace && s.service == service && s.GetName() == name {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// attribute returns the text or number of an attribute.
func (s span) attribute(name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return strings.Trim(strings.SplitN(a.GetValue().String(), ":", 2)[1], `"`)
		}
	}
	return ""
}

func (s span) events() (names []string) {
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
	}
	return names
}

// expectProcess checks the spans of a process that a call has started.
func (c *collector) expectProcess(t *testing.T, trace string, call span) {
	t.Helper()
	process := c.await(t, trace, "execwire", "process")
	start := c.await(t, trace, "execwire", "process start")
	if string(process.GetParentSpanId()) != string(call.GetSpanId()) || string(start.GetParentSpanId()) != string(process.GetSpanId()) {
		t.Errorf("the spans of the process are not below that of the call:\n%v\n%v\n%v", call.Span, process.Span, start.Span)
	}
	if got := process.events(); !slices.Equal(got, []string{"exec", "first byte", "exit"}) {
		t.Errorf("the process has the events %q", got)
	}
	if got := process.attribute("process.exit.code"); got != "7" {
		t.Errorf("the process has the exit code %q", got)
	}
	// The server may notice the exit before it has read the output.
	for _, e := range process.GetEvents() {
		times := []uint64{process.GetStartTimeUnixNano(), start.GetEndTimeUnixNano(), e.GetTimeUnixNano(), process.GetEndTimeUnixNano()}
		if !slices.IsSorted(times) {
			t.Errorf("the times of the process and its event %s are %d", e.GetName(), times)
		}
	}
}

// A trace that begins at a client goes on in the hub and in the executor, and so does one of
// a JSON-RPC client, also over a stream of the relay, of a preview and of a confined file
// call. Nothing of the command is in it. A trace that the caller does not
// record is not recorded, and one without a caller by the ratio.
func TestTraces_OfClients_GoOnInServers(t *testing.T) {
	c := newCollector(t, "Bearer of-traces")
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer of-traces\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := harness.NewFleet(t, "EXECWIRE_OTLP_ENDPOINT="+c.url, "EXECWIRE_HUB_OTLP_ENDPOINT="+c.url, "EXECWIRE_OTLP_HEADERS_FILE="+headers,
		"EXECWIRE_HUB_OTLP_HEADERS_FILE="+headers, "EXECWIRE_TRACE_RATIO=0", "EXECWIRE_HUB_PREVIEW_DOMAIN=preview.test")
	const secret = "secret-word"
	script := []string{"/bin/sh", "-c", "echo $0 $WORD; exit 7", secret}
	trace, parent := strings.Repeat("ab", 16), strings.Repeat("cd", 8)

	run := func(flags string) {
		t.Helper()
		command := harness.NewCommand(append(f.Through("-e", "WORD="+secret, "--"), script...)...)
		command.Env = append(command.Env, "TRACEPARENT=00-"+trace+"-"+parent+"-"+flags)
		if got := command.Complete(t, nil); got.Code != 7 || got.Stdout != secret+" "+secret+"\n" {
			t.Fatalf("the run is %+v", got)
		}
	}
	run("00")
	run("01")
	call := c.await(t, trace, "execwire", "execwire.v1.ProcessService/RunProcess")
	hop := c.await(t, trace, "execwire-hub", "GET /executor/{id}")
	for _, s := range []span{call, hop} {
		if got := hex.EncodeToString(s.GetParentSpanId()); got != parent || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
			t.Errorf("%s has the parent %s and the kind %v", s.GetName(), got, s.GetKind())
		}
	}
	c.expectProcess(t, trace, call)
	c.expectRelayed(t, f, script)
	c.expectPreviewed(t, f)

	server := harness.ServeWith(t, nil, "EXECWIRE_OTLP_ENDPOINT="+c.url, "EXECWIRE_OTLP_HEADERS_FILE="+headers)
	trace = strings.Repeat("ef", 16)
	rpc := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	text := strings.TrimSuffix(harness.RequestText(1, "process/start", harness.StartOf("p", script, harness.RPCParams{"env": map[string]string{"WORD": secret}})), "}")
	rpc.Send(fmt.Sprintf(`%s,"trace":{"traceparent":"00-%s-%s-01","tracestate":"vendor=1"}}`, text, trace, parent))
	if answer := rpc.Reply(1); answer.Error != nil {
		t.Fatalf("the start was refused: %+v", answer.Error)
	}
	call = c.await(t, trace, "execwire", "execwire.v1.ProcessService/StartProcess")
	if got := hex.EncodeToString(call.GetParentSpanId()); got != parent || call.GetTraceState() != "vendor=1" || call.attribute("rpc.grpc.status_code") != "0" {
		t.Errorf("the span of the start is %v", call.Span)
	}
	c.expectProcess(t, trace, call)
	rpc.Shut()
	c.expectConfined(t, server)

	// A failed call, of a trace that begins here. The end of the server sends it.
	if got := harness.Run(t, nil, "kill", "--server", server.URLs[harness.UnixTransport], "none"); got.Code == 0 {
		t.Errorf("killing no process is %+v", got)
	}
	if code := server.Stopped(t); code != 0 {
		t.Errorf("the server ends with %d", code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := slices.IndexFunc(c.spans, func(s span) bool { return s.attribute("error.type") == "PROCESS_NOT_FOUND" })
	if failed < 0 || len(c.spans[failed].GetParentSpanId()) != 0 {
		t.Error("the failed call has no span without a parent")
	}
	if strings.Contains(c.raw.String(), secret) {
		t.Error("a trace has something of the command")
	}
	for _, s := range c.spans {
		if s.service == "execwire-hub" && len(s.GetParentSpanId()) == 0 {
			t.Errorf("the hub began a trace: %v", s.Span)
		}
	}
}
