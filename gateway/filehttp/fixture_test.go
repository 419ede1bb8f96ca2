package filehttp_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/filehttp"
	"github.com/execwire/execwire/gateway/wsserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	server.FileWorkerMain()
	leakcheck.Main(m)
}

// fixture serves the files of a directory.
type fixture struct {
	t       *testing.T
	dir     string
	address string
	client  *http.Client
	files   execwirev1.FileSystemServiceClient
	served  chan string  // the method of each request that was served
	direct  atomic.Int64 // bytes that went from a file to a connection without a copy
}

// watchedListener counts the bytes that its connections send directly from a file.
type watchedListener struct {
	net.Listener
	direct *atomic.Int64
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return watchedConn{conn.(*net.TCPConn), l.direct}, nil
}

type watchedConn struct {
	*net.TCPConn
	direct *atomic.Int64
}

// ReadFrom implements io.ReaderFrom. Package net sends a file, or a part of one, by
// sendfile.
func (c watchedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	if part, ok := r.(*io.LimitedReader); ok {
		if _, ok := part.R.(*os.File); ok {
			c.direct.Add(n)
		}
	}
	return n, err
}

// settings are the options of a fixture.
type settings struct {
	access   filehttp.Access // without Calls
	idle     time.Duration
	required *execwirev1.SandboxPolicy
	copied   bool // the server cannot pass files on
}

// copying is a connection that ignores call options, as one to another host does.
type copying struct{ grpc.ClientConnInterface }

func (c copying) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(ctx, desc, method)
}

func newFixture(t *testing.T, set settings) *fixture {
	t.Helper()
	sessions := session.NewRegistry(process.NewSupervisor(process.Config{}), session.Config{})
	cfg := server.Config{
		Sessions: sessions,
		Limits: server.Limits{ServerLimits: &execwirev1.ServerLimits{MessageBytes: 4 << 20, ReadFileBytes: 1 << 20,
			UploadRetention: durationpb.New(time.Hour), UploadsPerPrincipal: 4}, AbandonedUploads: 4, FileWorkers: 2, FileWorkersTotal: 2, FileWorkerIdle: time.Minute},
		Authenticate:    func(context.Context) (auth.Caller, error) { return auth.Unrestricted(auth.Loopback), nil },
		RequiredSandbox: set.required,
	}
	if set.required != nil {
		cfg.Sandboxes = sandbox.New(sandbox.Options{})
		t.Cleanup(cfg.Sandboxes.Close)
	}
	srv := server.New(cfg)
	channel := inproc.New(inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...), inproc.WithStreamInterceptors(srv.StreamInterceptors()...))
	srv.Register(channel)
	f := &fixture{t: t, dir: t.TempDir(), files: execwirev1.NewFileSystemServiceClient(channel), served: make(chan string, 100)}
	set.access.Calls = channel
	if set.copied {
		set.access.Calls = copying{channel}
	}
	files := filehttp.NewHandler(filehttp.Config{Prefix: auth.FileURLPrefix, Begin: func(*http.Request, string, string) (filehttp.Access, error) { return set.access, nil }})
	handler := wsserver.NewHandler(wsserver.HTTPConfig{StallTimeout: set.idle, Origins: []string{"https://allowed"}, Mounts: map[string]http.Handler{
		auth.FileURLPrefix + "/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { f.served <- r.Method }()
			files.ServeHTTP(w, r)
		}),
	}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	httpServer := wsserver.NewHTTPServer(handler, time.Minute, slog.New(slog.DiscardHandler))
	var serving sync.WaitGroup
	serving.Go(func() { _ = httpServer.Serve(watchedListener{listener, &f.direct}) })
	transport := &http.Transport{DisableCompression: true}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = httpServer.Close()
		serving.Wait()
		if err := sessions.Close(context.Background()); err != nil {
			t.Error(err)
		}
		channel.Close()
		srv.Close()
	})
	return f
}

// each runs a test with files that the server passes on, and with copied content.
func each(t *testing.T, test func(t *testing.T, copied bool)) {
	t.Parallel()
	for name, copied := range map[string]bool{"passed": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, copied)
		})
	}
}

func (f *fixture) write(name string, content []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *fixture) expectFile(name, want string) {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil || string(content) != want {
		f.t.Errorf("%s is %.100q, %v, want %.100q", name, content, err, want)
	}
}

// url returns the URL of an escaped path.
func (f *fixture) url(escaped string) string {
	return "http://" + f.address + auth.FileURLPrefix + escaped
}

// response is a response with its body.
type response struct {
	*http.Response
	body string
}

// do makes a request with headers, given as name and value.
func (f *fixture) do(method, escaped string, body io.Reader, headers ...string) response {
	f.t.Helper()
	r, err := http.NewRequest(method, f.url(escaped), body)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response{resp, string(content)}
}

func (f *fixture) expect(r response, status int, body string) {
	f.t.Helper()
	if r.StatusCode != status || r.body != body {
		f.t.Errorf("%s %s: %s %.200q, want %d %.200q", r.Request.Method, r.Request.URL.Path, r.Status, r.body, status, body)
	}
}
