package tracing

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/tracecontext"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"

// open opens a tracer whose collector accepts connections and never answers.
func open(t *testing.T, o Options) *Tracer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	o.Endpoint = "http://" + listener.Addr().String()
	tracer, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// A collector that hangs delays neither spans nor, beyond its limit, the end. Each span is
// counted once.
func TestTracer_CollectorHangs_DropsAndCounts(t *testing.T) {
	tracer := open(t, Options{Ratio: 1})
	const spans = 2*(queueSpans+batchSpans) + 1
	for range spans {
		tracer.Start(tracecontext.Context{}, "x", Internal).End(false)
	}
	if dropped := tracer.Dropped(); dropped < spans-queueSpans-batchSpans || dropped >= spans {
		t.Errorf("of %d spans %d are dropped", spans, dropped)
	}
	tracer.Close()
	if tracer.Dropped() != spans || tracer.Exported() != 0 {
		t.Errorf("of %d spans %d are dropped and %d exported", spans, tracer.Dropped(), tracer.Exported())
	}
}

// The caller decides whether a trace is recorded, and the ratio without a caller.
func TestStart_Sampling(t *testing.T) {
	for _, tc := range []struct {
		parent       string
		ratio        float64
		isRecorded   bool
		ofThisCaller bool
	}{
		{"", 0, false, false}, {"", 1, true, false}, {caller + "0", 1, false, false}, {caller + "1", 0, true, true}, {"broken", 0, false, false},
	} {
		tracer := open(t, Options{Ratio: tc.ratio})
		span := tracer.Start(tracecontext.Parse(tc.parent, "a=1"), "x", Server)
		got := span.Context()
		if got.Sampled() != tc.isRecorded || (got.TraceID() == caller[3:35]) != tc.ofThisCaller || (got.State() == "a=1") != tc.ofThisCaller || tc.isRecorded == (got.SpanID() == "") {
			t.Errorf("below %q, ratio %v: %+v", tc.parent, tc.ratio, got)
		}
		if FromContext(NewContext(context.Background(), span)) != span || (span.Child("y", Internal, time.Now()) == nil) == tc.isRecorded {
			t.Errorf("below %q, ratio %v: the span is lost", tc.parent, tc.ratio)
		}
		tracer.Close()
	}
}

// Nothing of a tracer and a span that do not exist needs a check.
func TestNil_DoesNothing(t *testing.T) {
	tracer, err := Open(Options{})
	if tracer != nil || err != nil {
		t.Fatalf("without an endpoint there is %v, %v", tracer, err)
	}
	span := tracer.Start(tracecontext.Parse(caller+"1", ""), "x", Server)
	span.SetString("a", "b")
	span.SetInt("a", 1)
	span.Refused(500, "x")
	span.endCall(nil)
	span.End(true)
	if tracer.UnaryInterceptors() != nil || tracer.StreamInterceptors() != nil || tracer.Handler(nil) != nil || !span.Context().IsZero() {
		t.Error("no tracer does something")
	}
	tracer.Close()
}

func TestOpen_BadOptions_SayWhat(t *testing.T) {
	write := func(mode os.FileMode, text string) string {
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for want, o := range map[string]Options{
		"not http://HOST:PORT":    {Endpoint: "collector:4317"},
		"can be read":             {Endpoint: "http://c", Headers: write(0o644, "a: secret")},
		"has no header in line 2": {Endpoint: "http://c", Headers: write(0o600, "a: secret\nsecret\n")},
		"has no certificate":      {Endpoint: "https://c", CA: write(0o600, "secret")},
		"\"collector\"":           {Environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=collector"}},
	} {
		tracer, err := Open(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
		tracer.Close()
	}
}

// The variables of the standard select a collector if they mean this protocol.
func TestOpen_Environment(t *testing.T) {
	const grpc, endpoint = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1"
	for want, environ := range map[string][]string{
		"http://c:1": {grpc, endpoint},
		"http://d:2": {grpc, endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://d:2"},
	} {
		if got := endpointOf(environ); got != want {
			t.Errorf("%q select %q, want %q", environ, got, want)
		}
	}
	for _, environ := range [][]string{
		nil, {endpoint}, {endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, {endpoint, grpc, "OTEL_SDK_DISABLED=true"},
		{endpoint, grpc, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"},
	} {
		if got := endpointOf(environ); got != "" {
			t.Errorf("%q select %q", environ, got)
		}
	}
	got := Options{Service: "execwire", Version: "1", Environ: []string{"OTEL_SERVICE_NAME=builds", "OTEL_RESOURCE_ATTRIBUTES=a=b%20c, service.name=other"}}.resource()
	if got[0] != [2]string{"service.name", "builds"} || got[len(got)-1] != [2]string{"a", "b c"} {
		t.Errorf("the resource is %q", got)
	}
}
