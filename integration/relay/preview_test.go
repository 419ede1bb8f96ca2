package relay

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/publicsuffix"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testport"
)

// webServer is a program with a web server: websockets, streams of events, requests that
// never end, and an answer that says what was received.
const webServer = `
import base64, hashlib, json, socketserver, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

proceed = threading.Semaphore(0)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def begin(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.flush()
    def answer(self, body):
        self.begin(200, Content_Length=str(len(body)))
        self.wfile.write(body)
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/request":
            self.answer(json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode())
        elif path == "/redirect":
            self.begin(302, Location="http://" + self.headers["Host"] + "/request?a=b", Content_Length="0")
        elif path == "/proceed":
            proceed.release()
            self.answer(b"")
        elif path == "/events":
            self.begin(200, Content_Type="text/event-stream", Connection="close")
            for event in b"one", b"two":
                self.wfile.write(b"data: " + event + b"\n\n")
                self.wfile.flush()
                proceed.acquire()
        elif path == "/stuck":
            self.begin(200, Connection="close")
            self.wfile.write(b"stuck\n")
            self.wfile.flush()
            self.rfile.read(1)
        elif path == "/endless":
            self.begin(200, Connection="close")
            while True:
                self.wfile.write(bytes(1 << 16))
        elif path == "/websocket":
            key = self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.begin(101, Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Accept=base64.b64encode(hashlib.sha1(key).digest()).decode())
            self.close_connection = True
            while head := self.rfile.read(2):
                mask = self.rfile.read(4)
                data = self.rfile.read(head[1] & 127)
                self.wfile.write(bytes([head[0], len(data)]) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
                self.wfile.flush()
                if head[0] & 15 == 8:
                    return
        else:
            self.answer(b"a page")

class Server(ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, *args): pass

Server(("127.0.0.1", 0), Handler).serve_forever()
`

// previews are the previews of a fleet, with a client that resolves every name to the hub.
type previews struct {
	*harness.Fleet
	t *testing.T
	*http.Client
}

func newPreviews(t *testing.T, settings ...string) *previews {
	t.Helper()
	return previewsOf(t, harness.NewFleet(t, append(settings, "EXECWIRE_HUB_PREVIEW_DOMAIN=preview.test")...))
}

// previewsOf returns the previews of a fleet whose hub has them.
func previewsOf(t *testing.T, fleet *harness.Fleet) *previews {
	t.Helper()
	p := &previews{Fleet: fleet, t: t}
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(transport.CloseIdleConnections)
	jar, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil {
		t.Fatal(err)
	}
	p.Client = &http.Client{Transport: transport, Jar: jar}
	return p
}

func (p *previews) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", p.Near.Listener.Addr().String())
}

// command runs a command on the hub, and returns what it prints.
func (p *previews) command(name string, arguments ...string) string {
	p.t.Helper()
	got := harness.Run(p.t, nil, append([]string{name, "--hub", p.URL(), "--executor", harness.ExecutorID}, arguments...)...)
	if got.Code != 0 {
		p.t.Fatalf("%s: %+v", name, got)
	}
	return strings.TrimSpace(got.Stdout)
}

// start starts a process on the executor that listens, and returns its port.
func (p *previews) start(id string, argv ...string) (port string) {
	p.t.Helper()
	p.command("run", append([]string{"--detach", "--id", id, "--cwd", harness.ShortDir(p.t), "--"}, argv...)...)
	harness.Eventually(p.t, "the process listens", func() bool {
		line, _, _ := strings.Cut(p.command("ports", "--json", id), "\n")
		var listening struct{ Port int }
		port = ""
		if json.Unmarshal([]byte(line), &listening) == nil {
			port = fmt.Sprint(listening.Port)
		}
		return port != ""
	})
	return port
}

// host is the host of a preview without a port: the client connects to the hub anyhow.
func host(port string) string { return port + "--" + harness.ExecutorID + ".preview.test" }

// open makes a link to a port, exchanges it, and returns it.
func (p *previews) open(port string) (link string) {
	p.t.Helper()
	link = p.command("preview", port, "--expires", "10m")
	response, err := p.Get(link)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Request.URL.RawQuery != "" {
		p.t.Errorf("the link leads to %s", response.Request.URL)
	}
	return link
}

// get returns the status and body of a response.
func (p *previews) get(url string) (status int, body string) {
	p.t.Helper()
	response, err := p.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// begin makes a request and reads the first line of the response.
func (p *previews) begin(url string) (lines *bufio.Reader, end func()) {
	p.t.Helper()
	response, err := p.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		p.t.Fatalf("%s: %s, %s", url, response.Status, text)
	}
	end = func() { _ = response.Body.Close() }
	p.t.Cleanup(end)
	return bufio.NewReader(response.Body), end
}

func (p *previews) expectLine(lines *bufio.Reader, want string) {
	p.t.Helper()
	if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
		p.t.Fatalf("%q, %v, want the line %q", got, err, want)
	}
}

// websocket opens one of a preview and exchanges messages.
func (p *previews) websocket(port string) io.ReadWriteCloser {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+host(port)+"/websocket", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header = http.Header{"Origin": {"http://" + host(port)}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	response, err := p.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	conn, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || !ok {
		p.t.Fatalf("a websocket: %s, %v", response.Status, response.Header)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	for _, text := range []string{"hot", "reload"} {
		const final, masked = "\x81", 0x80 // with a mask of zero
		if _, err := io.WriteString(conn, final+string([]byte{masked | byte(len(text)), 0, 0, 0, 0})+text); err != nil {
			p.t.Fatal(err)
		}
		got := make([]byte, 2+len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != final+string([]byte{byte(len(text))})+text {
			p.t.Fatalf("%q came, %v", got, err)
		}
	}
	return conn
}

func TestPreview_WebServer_IsServed(t *testing.T) {
	p := newPreviews(t)
	port := p.start("web", harness.Python, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0")
	p.open(port)
	if status, body := p.get("http://" + host(port) + "/"); status != http.StatusOK || !strings.Contains(body, "Directory listing for /") {
		t.Errorf("%d, %s", status, body)
	}
	own := p.start("own", harness.Python, "-c", webServer)
	link := p.open(own)

	// The port receives the request as for itself, without what authorizes it at the hub.
	request, err := http.NewRequest(http.MethodGet, "http://"+host(own)+"/request?a=1;2&x=%zz&b", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer of-the-application"}, "Origin": {"http://" + host(own)}, "Cookie": {"a=b;  c=\"d\""}, "X-Forwarded-Host": {"forged"}}
	response, err := p.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	var received struct {
		Path    string
		Headers map[string]string
	}
	if err := json.NewDecoder(response.Body).Decode(&received); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if received.Path != "/request?a=1;2&x=%zz&b" {
		t.Errorf("the path is %s", received.Path)
	}
	for name, want := range map[string]string{
		"host": "localhost:" + own, "origin": "http://localhost:" + own, "cookie": "a=b; c=\"d\"", "authorization": "Bearer of-the-application",
		"x-forwarded-host": host(own), "x-forwarded-proto": "http", "x-forwarded-for": "127.0.0.1",
	} {
		if received.Headers[name] != want {
			t.Errorf("%s is %q, want %q", name, received.Headers[name], want)
		}
	}
	if status, body := p.get("http://" + host(own) + "/redirect"); status != http.StatusOK || !strings.Contains(body, "/request?a=b") {
		t.Errorf("a redirect of the port: %d, %s", status, body)
	}

	// Uploads, and events as they are sent.
	sent := strings.Repeat("upload", 1<<18)
	response, err = p.Post("http://"+host(own)+"/upload", "text/plain", strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	if n, err := io.Copy(digest, response.Body); err != nil || n != int64(len(sent)) || [32]byte(digest.Sum(nil)) != sha256.Sum256([]byte(sent)) {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	_ = response.Body.Close()
	events, _ := p.begin("http://" + host(own) + "/events")
	p.expectLine(events, "data: one")
	p.get("http://" + host(own) + "/proceed")
	p.expectLine(events, "")
	p.expectLine(events, "data: two")

	if list := p.command2("preview", "--list"); strings.Count(list, "\n") != 2 || !strings.Contains(list, "\t"+link) || !strings.Contains(list, "\n"+harness.ExecutorID+"\t"+port+"\t") {
		t.Errorf("the list of links is %q", list)
	}

	// Revoking the link ends what uses it.
	conn := p.websocket(own)
	if got := p.command2("preview", "--revoke", link); got != "revoked: port "+own+" of executor "+harness.ExecutorID {
		t.Errorf("revoking prints %q", got)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a websocket survives its link")
	}
	if rest, err := io.ReadAll(events); err == nil {
		t.Errorf("a response survives its link: %q", rest)
	}
	p.Jar, _ = cookiejar.New(nil)
	if status, body := p.get(link); status != http.StatusUnauthorized || !strings.Contains(body, "revoked") {
		t.Errorf("a revoked link: %d, %s", status, body)
	}
	if status, body := p.get("http://" + host(port) + "/"); status != http.StatusOK { // loopback needs no link
		t.Errorf("another preview: %d, %s", status, body)
	}
}

// command2 is command without --executor.
func (p *previews) command2(name string, arguments ...string) string {
	p.t.Helper()
	got := harness.Run(p.t, nil, append([]string{name, "--hub", p.URL()}, arguments...)...)
	if got.Code != 0 {
		p.t.Fatalf("%s: %+v", name, got)
	}
	return strings.TrimSpace(got.Stdout)
}

// Requests that never end, and clients that do not read, use up their own port's limit and
// delay no other preview.
func TestPreview_StuckRequests_DisturbNoOther(t *testing.T) {
	const limit = 4
	p := newPreviews(t, fmt.Sprintf("EXECWIRE_HUB_PREVIEW_CONNECTIONS_PER_PORT=%d", limit), fmt.Sprintf("EXECWIRE_HUB_PREVIEW_CONNECTIONS_PER_EXECUTOR=%d", limit+1))
	stuck, other, third := p.start("stuck", harness.Python, "-c", webServer), p.start("other", harness.Python, "-c", webServer), p.start("third", harness.Python, "-c", webServer)
	var ends []func()
	for i := range limit {
		path := "/stuck"
		if i > 0 {
			path = "/endless" // its client does not read
		}
		_, end := p.begin("http://" + host(stuck) + path)
		ends = append(ends, end)
	}
	if status, body := p.get("http://" + host(stuck) + "/request"); status != http.StatusTooManyRequests || !strings.Contains(body, `"connection_limit"`) || !strings.Contains(body, "preview_connections_per_port") {
		t.Errorf("one request too many: %d, %s", status, body)
	}
	for range 3 {
		if status, body := p.get("http://" + host(other) + "/request"); status != http.StatusOK {
			t.Errorf("another port: %d, %s", status, body)
		}
	}
	_, end := p.begin("http://" + host(other) + "/stuck")
	if status, body := p.get("http://" + host(third) + "/request"); status != http.StatusTooManyRequests || !strings.Contains(body, "preview_connections_per_executor") {
		t.Errorf("one request too many of the executor: %d, %s", status, body)
	}
	for _, end := range append(ends, end) {
		end()
	}
	harness.Eventually(t, "the requests are over", func() bool {
		status, _ := p.get("http://" + host(stuck) + "/request")
		return status == http.StatusOK
	})
	if status, body := p.get("http://" + host("1") + "/"); status != http.StatusBadGateway || !strings.Contains(body, `"port_unreachable"`) {
		t.Errorf("a port on which nothing listens: %d, %s", status, body)
	}
}

// The hub still tries to connect to a port that does not accept when the clients that asked
// for it are gone. These attempts leave connections of the executor to other ports.
func TestPreview_PortDoesNotAccept_LeavesConnectionsToOthers(t *testing.T) {
	p := newPreviews(t, "EXECWIRE_HUB_PREVIEW_CONNECTIONS_PER_PORT=1", "EXECWIRE_HUB_PREVIEW_CONNECTIONS_PER_EXECUTOR=1",
		"EXECWIRE_PORT_CONNECTIONS_PER_PRINCIPAL=5", "EXECWIRE_PORT_CONNECT_TIMEOUT=1m")
	full := p.start("full", harness.Python, "-c", "import signal, socket; s = socket.create_server(('127.0.0.1', 0), backlog=0); signal.pause()")
	other, third := p.start("other", harness.Python, "-c", webServer), p.start("third", harness.Python, "-c", webServer)
	for range 8 {
		var asking []net.Conn
		harness.Eventually(t, "a request to the full port is in progress", func() bool {
			if status, _ := p.get("http://" + host(other) + "/request"); status == http.StatusTooManyRequests {
				return true
			}
			conn, err := p.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			asking = append(asking, conn)
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host(full))
			return false
		})
		for _, conn := range asking {
			_ = conn.Close()
		}
		harness.Eventually(t, "the client is gone", func() bool {
			status, _ := p.get("http://" + host(other) + "/request")
			return status == http.StatusOK
		})
	}
	harness.Eventually(t, "another port is connected to", func() bool {
		status, body := p.get("http://" + host(third) + "/request")
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatalf("another port: %d, %s", status, body)
		}
		return status == http.StatusOK
	})
}

// A preview works again when executor and hub are back. A link does not survive the hub,
// which ends at once although requests are in progress.
func TestPreview_Restarts_NewRequestsWork(t *testing.T) {
	p := newPreviews(t)
	page := harness.ShortDir(t)
	if err := os.WriteFile(filepath.Join(page, "page"), []byte("the page"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(id string) (port string) {
		return p.start(id, harness.Python, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", page, "0")
	}
	works := func(port string) {
		t.Helper()
		p.open(port)
		if status, body := p.get("http://" + host(port) + "/page"); status != http.StatusOK || body != "the page" {
			t.Fatalf("%d, %s", status, body)
		}
	}
	port := serve("one")
	works(port)

	p.Executor.Kill()
	harness.Eventually(t, "the executor is away", func() bool {
		status, body := p.get("http://" + host(port) + "/page")
		return status == http.StatusNotFound && strings.Contains(body, `"executor_offline"`)
	})
	p.Executor = harness.NewCommand("serve", "--remote", "http://"+p.Far.Listener.Addr().String(), "--executor-id", harness.ExecutorID)
	p.Executor.Launch(t)
	p.AwaitExecutor(t)
	works(serve("two"))

	own := p.start("own", harness.Python, "-c", webServer)
	link := p.open(own)
	stuck, _ := p.begin("http://" + host(own) + "/stuck")
	p.expectLine(stuck, "stuck")
	_, _ = p.begin("http://" + host(own) + "/endless")
	conn := p.websocket(own)
	address := harness.AddressOf(p.Hub.URLs[harness.HubTransport])
	if code := p.Hub.Stopped(t); code != 0 {
		t.Errorf("the hub exits with %d: %s", code, p.Hub.Errors.String())
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a websocket survives the hub")
	}
	p.Hub = harness.NewHub(t, []string{"EXECWIRE_HUB_PREVIEW_DOMAIN=preview.test"}, "--listen", "http://"+address)
	p.AwaitExecutor(t)
	p.Jar, _ = cookiejar.New(nil)
	if status, body := p.get(link); status != http.StatusUnauthorized || !strings.Contains(body, "since it started") {
		t.Errorf("a link of an earlier hub: %d, %s", status, body)
	}
	p.open(own)
	if status, body := p.get("http://" + host(own) + "/request"); status != http.StatusOK {
		t.Errorf("after the restart of the hub: %d, %s", status, body)
	}
}

// newCluster starts a hub of two nodes with previews, and returns their commands and addresses.
func newCluster(t *testing.T) (nodes [2]*harness.Command, addresses [2]string) {
	t.Helper()
	var peers [2]string
	for i := range nodes {
		addresses[i], peers[i] = fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t)), fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t))
	}
	key := filepath.Join(harness.ShortDir(t), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup // a node is ready when both have started
	for i := range nodes {
		settings := []string{"EXECWIRE_HUB_NODE=" + fmt.Sprint(i), "EXECWIRE_HUB_PUBLIC_URL=http://" + addresses[i], "EXECWIRE_HUB_URL_KEY_FILE=" + key,
			"EXECWIRE_HUB_PRESENCE=nats", "EXECWIRE_HUB_CLUSTER_LISTEN=" + peers[i], "EXECWIRE_HUB_CLUSTER_ROUTES=" + peers[1-i],
			"EXECWIRE_HUB_PREVIEW_DOMAIN=preview.test"}
		starting.Go(func() { nodes[i] = harness.NewHub(t, settings, "--listen", "http://"+addresses[i]) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return nodes, addresses
}

// A preview works at a node to which the executor is not connected, also when it has moved from the
// other node to this one.
func TestPreview_Cluster_WorksAtEveryNode(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	nodes, addresses := newCluster(t)
	connect := func(node int) *harness.Command {
		c := harness.NewCommand("serve", "--remote", "http://"+addresses[node], "--executor-id", harness.ExecutorID)
		c.Env = append(c.Env, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s")
		c.Launch(t)
		return c
	}
	at := func(node int) *previews {
		return previewsOf(t, &harness.Fleet{Hub: nodes[node], Near: harness.NewProxy(t, "tcp", addresses[node])})
	}
	p, other := at(0), at(1)
	executor := connect(1)
	p.AwaitExecutor(t)
	port := other.start("web", harness.Python, "-c", webServer) // other clients ask for the executor's node
	link := p.open(port)
	if status, body := p.get("http://" + host(port) + "/request"); status != http.StatusOK || !strings.Contains(body, "localhost:"+port) {
		t.Errorf("at the other node: %d, %s", status, body)
	}
	conn := p.websocket(port)
	if status, body := other.get("http://" + host(port) + "/request"); status != http.StatusOK { // loopback needs no link
		t.Errorf("at the executor's node: %d, %s", status, body)
	}

	// A new request reaches the next executor.
	if code := executor.Stopped(t); code != 0 {
		t.Errorf("the executor exits with %d: %s", code, executor.Errors.String())
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a websocket survives its executor")
	}
	harness.Eventually(t, "the executor is away", func() bool {
		status, body := p.get("http://" + host(port) + "/request")
		return status == http.StatusNotFound && strings.Contains(body, `"executor_offline"`)
	})
	connect(0)
	p.AwaitExecutor(t)
	port = p.start("next", harness.Python, "-c", webServer)
	for node, at := range map[string]*previews{"its own": p, "the other": other} {
		harness.Eventually(t, "the node knows where the executor is", func() bool {
			status, body := at.get("http://" + host(port) + "/request")
			if status != http.StatusOK && !strings.Contains(body, `"executor_offline"`) {
				t.Fatalf("at %s node: %d, %s", node, status, body)
			}
			return status == http.StatusOK
		})
	}
	if got := p.command2("preview", "--revoke", link); !strings.HasPrefix(got, "revoked: port ") {
		t.Errorf("revoking prints %q", got)
	}
}

// A client reaches an executor through a node to which the executor is not connected: that node
// says where it is.
func TestCluster_Client_IsSentToTheNodeOfTheExecutor(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	nodes, addresses := newCluster(t)
	executor := harness.NewCommand("serve", "--remote", "http://"+addresses[1], "--executor-id", harness.ExecutorID)
	executor.Launch(t)
	(&harness.Fleet{Hub: nodes[1], Near: harness.NewProxy(t, "tcp", addresses[1])}).AwaitExecutor(t)
	for node, address := range addresses {
		got := harness.Run(t, nil, "run", "--hub", "http://"+address, "--executor", harness.ExecutorID, "--", "echo", "reached")
		if got.Code != 0 || got.Stdout != "reached\n" {
			t.Errorf("through node %d: %+v", node, got)
		}
	}
}
