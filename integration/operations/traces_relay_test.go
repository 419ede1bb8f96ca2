package operations

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/relay"
	relayharness "github.com/execwire/execwire/relay/harness"
)

// tracedStream is a JSON-RPC client over a stream of the relay, like that of the reference:
// the first frame of a request has its trace.
type tracedStream struct {
	t      *testing.T
	stream *relay.Stream
	trace  tracecontext.Context // of the next request

	traced []string // what the executor has sent with the trace: the method, or the id of a request; of the reader
}

func (s *tracedStream) Send(message []byte) error {
	trace := s.trace
	s.trace = tracecontext.Context{}
	return s.stream.SendTraced(harness.Context(s.t), message, trace)
}

func (s *tracedStream) Receive() (harness.RPCFrame, error) {
	message, trace, err := s.stream.ReceiveTraced(harness.Context(s.t))
	var named struct {
		Method string
		ID     json.RawMessage
	}
	if err == nil && !trace.IsZero() && json.Unmarshal(message, &named) == nil {
		s.traced = append(s.traced, named.Method+string(named.ID)+" "+trace.Parent())
	}
	return harness.RPCFrame{Kind: "text", Data: message}, err
}

func (s *tracedStream) Drop() { s.stream.Reset(relay.ReasonGoingAway) }

// expectRelayed checks the trace of a JSON-RPC request whose frame has it, and no member of
// the message.
func (c *collector) expectRelayed(t *testing.T, f *harness.Fleet, script []string) {
	t.Helper()
	trace, parent := strings.Repeat("12", 16), strings.Repeat("34", 8)
	of := tracecontext.Parse("00-"+trace+"-"+parent+"-01", "vendor=1")
	ctx := harness.Context(t)
	h, err := relayharness.Dial(ctx, relayharness.Options{URL: "ws://" + f.Near.Listener.Addr().String() + "/executor/" + harness.ExecutorID + "?role=harness", Trace: of})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := h.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &tracedStream{t: t, stream: stream}
	rpc := harness.NewRPCClient(t, s, nil).Initialize("")
	s.trace = of
	rpc.Start("relayed", script, harness.RPCParams{"env": map[string]string{"WORD": script[len(script)-1]}})
	rpc.AwaitEvent("process/closed", "relayed")
	rpc.Drop()
	rpc.AwaitEnd()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	call := c.await(t, trace, "execwire", "execwire.v1.ProcessService/StartProcess")
	if got := hex.EncodeToString(call.GetParentSpanId()); got != parent || call.GetTraceState() != "vendor=1" {
		t.Errorf("the start over the relay is %v", call.Span)
	}
	c.expectProcess(t, trace, call)
	c.await(t, trace, "execwire-hub", "GET /executor/{id}")
	// The answer to the start, and the end of the process.
	if len(s.traced) != 2 || !strings.HasSuffix(s.traced[0], " "+of.Parent()) || s.traced[1] != "process/closed "+of.Parent() {
		t.Errorf("the executor has sent with the trace %q", s.traced)
	}
}

// expectConfined checks the spans of file calls of a worker.
func (c *collector) expectConfined(t *testing.T, server *harness.Command) {
	t.Helper()
	trace := strings.Repeat("56", 16)
	dir := harness.ShortDir(t)
	files := execwirev1.NewFileSystemServiceClient(harness.Dial(t, "unix", strings.TrimPrefix(server.URLs[harness.UnixTransport], "unix://")))
	ctx := metadata.AppendToOutgoingContext(harness.Context(t), tracecontext.ParentKey, "00-"+trace+"-"+strings.Repeat("78", 8)+"-01")
	path := filepath.Join(dir, "file")
	if _, err := files.WriteFile(ctx, &execwirev1.WriteFileRequest{Path: path, Data: []byte("content"), Sandbox: harness.OnlyWritable(dir)}); err != nil {
		t.Fatal(err)
	}
	download, err := files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: path, Sandbox: harness.OnlyWritable(dir)})
	for err == nil {
		_, err = download.Recv()
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	write := c.await(t, trace, "execwire", "execwire.v1.FileSystemService/WriteFile")
	read := c.await(t, trace, "execwire", "execwire.v1.FileSystemService/DownloadFile")
	start := c.await(t, trace, "execwire", "file worker start")
	if string(start.GetParentSpanId()) != string(write.GetSpanId()) {
		t.Errorf("the start of the worker is not below the first call: %v", start.Span)
	}
	for _, call := range []span{write, read} {
		harness.Eventually(t, call.GetName()+" has a span of the worker", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.ContainsFunc(c.spans, func(s span) bool {
				return s.GetName() == "file worker" && string(s.GetParentSpanId()) == string(call.GetSpanId()) &&
					call.GetStartTimeUnixNano() <= s.GetStartTimeUnixNano() && s.GetEndTimeUnixNano() <= call.GetEndTimeUnixNano()
			})
		})
	}
}

// traceparentServer answers requests with their traceparent.
const traceparentServer = `
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["traceparent"].encode())
HTTPServer(("127.0.0.1", 0), Handler).serve_forever()
`

// expectPreviewed checks that a request to a preview, and the connection to the port, are in
// the trace of the client, and the application gets it.
func (c *collector) expectPreviewed(t *testing.T, f *harness.Fleet) {
	t.Helper()
	trace := strings.Repeat("9a", 16)
	command := func(name string, arguments ...string) string {
		t.Helper()
		got := harness.Run(t, nil, append([]string{name, "--hub", f.URL(), "--executor", harness.ExecutorID}, arguments...)...)
		if got.Code != 0 {
			t.Fatalf("%s: %+v", name, got)
		}
		return strings.TrimSpace(got.Stdout)
	}
	command("run", "--detach", "--id", "web", "--", "python3", "-c", traceparentServer)
	port := ""
	harness.Eventually(t, "the process listens", func() bool {
		var listening struct{ Port json.Number }
		if json.NewDecoder(strings.NewReader(command("ports", "--json", "web"))).Decode(&listening) == nil {
			port = listening.Port.String()
		}
		return port != ""
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", f.Near.Listener.Addr().String())
	}}}
	request, err := http.NewRequestWithContext(harness.Context(t), http.MethodGet, "http://"+port+"--"+harness.ExecutorID+".preview.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(tracecontext.ParentKey, "00-"+trace+"-"+strings.Repeat("bc", 8)+"-01")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %q, %v", response.Status, got, err)
	}
	hop := c.await(t, trace, "execwire-hub", "preview")
	if parent := tracecontext.Parse(string(got), ""); parent.TraceID() != trace || parent.SpanID() != hex.EncodeToString(hop.GetSpanId()) {
		t.Errorf("the application got the traceparent %q of the preview %v", got, hop.Span)
	}
	// The stream to the port ends when the hub drops the connection, which the process does.
	command("kill", "web")
	if call := c.await(t, trace, "execwire", "execwire.v1.PortService/ConnectPort"); string(call.GetParentSpanId()) != string(hop.GetSpanId()) {
		t.Errorf("the connection to the port is not below the preview: %v", call.Span)
	}
}
