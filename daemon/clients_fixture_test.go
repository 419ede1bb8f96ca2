package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
)

// opened is a running daemon.
type opened struct {
	t      *testing.T
	ctx    context.Context // ends when the test hangs
	daemon *daemon.Daemon
	urls   []string
	log    *buffer

	stop, stopNow context.CancelCauseFunc
	served        chan struct{} // closed when Serve has returned
	err           error         // what it returned
}

// open runs a daemon with a modified default configuration until the test ends.
func open(t *testing.T, change func(*config.Config)) *opened {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = []string{"ws://127.0.0.1:0"}
	change(&cfg)
	o := &opened{t: t, log: &buffer{}, served: make(chan struct{})}
	listening := make(chan string, len(cfg.Listen))
	var err error
	o.daemon, err = daemon.New(cfg, daemon.Options{
		OnListen: func(url string) { listening <- url },
		Logger:   slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	o.ctx = ctx
	stopped, stop := context.WithCancelCause(context.Background())
	now, stopNow := context.WithCancelCause(context.Background())
	o.stop, o.stopNow = stop, stopNow
	go func() {
		defer close(o.served)
		o.err = o.daemon.Serve(stopped, now)
	}()
	for range cfg.Listen {
		select {
		case url := <-listening:
			o.urls = append(o.urls, url)
		case <-o.served:
			t.Fatalf("Serve = %v", o.err)
		}
	}
	t.Cleanup(func() {
		stop(errOver)
		stopNow(errOver)
		<-o.served
		if o.err != nil {
			t.Errorf("Serve = %v", o.err)
		}
		cancel()
	})
	return o
}

var errOver = errors.New("the test is over")

// bearerHeader returns a header with a bearer token.
func bearerHeader(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// rpc is a sequential JSON-RPC client.
type rpc struct {
	t             *testing.T
	conn          *wsconn.Conn
	lastID        int
	session       string
	notifications []string // notifications received while waiting for responses
}

// dial opens a websocket to the first listener.
func (o *opened) dial(options wsconn.DialOptions) (*rpc, error) {
	o.t.Helper()
	conn, err := wsconn.Dial(o.ctx, o.urls[0], options)
	if err != nil {
		return nil, err
	}
	o.t.Cleanup(func() { _ = conn.Close(wsconn.CodeNormal, "") })
	return &rpc{t: o.t, conn: conn}, nil
}

// dialSession opens a websocket and a session.
func (o *opened) dialSession(header http.Header) *rpc {
	o.t.Helper()
	c, err := o.dial(wsconn.DialOptions{Header: header})
	if err != nil {
		o.t.Fatal(err)
	}
	return c.initialize()
}

func (c *rpc) initialize() *rpc {
	c.t.Helper()
	answer := c.ask("initialize", map[string]any{"clientName": "test"})
	result, _ := answer["result"].(map[string]any)
	if c.session, _ = result["sessionId"].(string); c.session == "" {
		c.t.Fatalf("initialize = %v", answer)
	}
	c.send(map[string]any{"method": "initialized"})
	return c
}

func (c *rpc) send(message map[string]any) {
	c.t.Helper()
	text, err := json.Marshal(message)
	if err == nil {
		err = c.conn.Send(text)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request and returns the response.
func (c *rpc) ask(method string, params map[string]any) map[string]any {
	c.t.Helper()
	c.lastID++
	c.send(map[string]any{"id": c.lastID, "method": method, "params": params})
	for {
		message, text := c.next()
		if id, ok := message["id"]; ok && id == float64(c.lastID) {
			return message
		}
		c.notifications = append(c.notifications, text)
	}
}

// next returns the next message.
func (c *rpc) next() (message map[string]any, text string) {
	c.t.Helper()
	data, err := c.conn.Receive()
	if err != nil {
		c.t.Fatalf("Receive = %v", err)
	}
	if err := json.Unmarshal(data, &message); err != nil {
		c.t.Fatalf("%s: %v", data, err)
	}
	return message, string(data)
}

// start starts a shell command.
func (c *rpc) start(id, script string) map[string]any {
	c.t.Helper()
	return c.ask("process/start", map[string]any{
		"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "/", "env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false,
	})
}

// expectNotification waits for a notification that contains all of the strings.
func (c *rpc) expectNotification(pieces ...string) {
	c.t.Helper()
	has := func(text string) bool {
		return !slices.ContainsFunc(pieces, func(piece string) bool { return !strings.Contains(text, piece) })
	}
	for !slices.ContainsFunc(c.notifications, has) {
		_, text := c.next()
		c.notifications = append(c.notifications, text)
	}
}

// expectClosed expects the server to close the websocket with this code, and closes it.
func (c *rpc) expectClosed(code int) {
	c.t.Helper()
	defer func() { _ = c.conn.Close(wsconn.CodeNormal, "") }()
	for {
		data, err := c.conn.Receive()
		var closed *wsconn.ClosedError
		if err == nil {
			c.notifications = append(c.notifications, string(data))
			continue
		}
		if code == wsconn.CodeNormal && errors.Is(err, io.EOF) || errors.As(err, &closed) && closed.Code == code {
			return
		}
		c.t.Errorf("the websocket ended with %v, want code %d", err, code)
		return
	}
}

// refused expects the websocket handshake to be rejected.
func (o *opened) refused(options wsconn.DialOptions, status int, text string) {
	o.t.Helper()
	_, err := o.dial(options)
	var refusal *wsconn.RefusedError
	if !errors.As(err, &refusal) || refusal.Status != status || refusal.Text != text {
		o.t.Errorf("%v: got %v (%+v), want %d %q", options.Header, err, refusal, status, text)
	}
}

// get requests a path of the first listener and returns the status.
func (o *opened) get(path string, header http.Header) int {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.ctx, http.MethodGet, "http"+strings.TrimPrefix(o.urls[0], "ws")+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if header != nil {
		request.Header = header
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		o.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// grpc connects to a listener, given by its index.
func (o *opened) grpc(listener int) *grpc.ClientConn {
	o.t.Helper()
	_, address, _ := strings.Cut(o.urls[listener], "://")
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// logged waits until the log contains the text.
func (o *opened) logged(text string) {
	o.t.Helper()
	for !strings.Contains(o.log.String(), text) {
		if o.ctx.Err() != nil {
			o.t.Fatalf("the log does not contain %q: %s", text, o.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// errorOf returns the code and the message of an error response.
func errorOf(answer map[string]any) string {
	problem, _ := answer["error"].(map[string]any)
	return fmt.Sprint(problem["code"], " ", problem["message"])
}
