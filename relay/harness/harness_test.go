package harness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/harness"
)

// patience bounds waiting for something that must happen.
const patience = 2 * time.Minute

// rendezvous is a rendezvous with one executor, which echoes messages.
type rendezvous struct {
	t        *testing.T
	url      string
	executor *relay.Endpoint
	server   *httptest.Server
	serving  sync.WaitGroup

	mu      sync.Mutex
	refuse  int         // guarded by mu; HTTP status to respond with, unless 0
	headers http.Header // guarded by mu; of the latest request
	opened  int         // guarded by mu; number of websockets
	current *wsconn.Conn
	ended   chan struct{} // closed when current is no longer served
}

func newRendezvous(t *testing.T) *rendezvous {
	t.Helper()
	executor := relay.NewEndpoint(relay.Config{Role: relay.Executor, Logger: quiet(t)})
	r := &rendezvous{t: t, executor: executor}
	r.server = httptest.NewServer(r)
	r.url = "ws://" + r.server.Listener.Addr().String() + "/executor/a?role=harness"
	r.serving.Go(r.echo)
	t.Cleanup(func() {
		if err := r.executor.Close(relay.ReasonGoingAway); err != nil {
			t.Error(err)
		}
		r.server.Close()
		r.serving.Wait()
	})
	return r
}

func quiet(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// echo echoes every message of every stream.
func (r *rendezvous) echo() {
	for {
		stream, err := r.executor.Accept(context.Background())
		if err != nil {
			return
		}
		r.serving.Go(func() {
			for {
				message, err := stream.Receive(context.Background())
				if err != nil || stream.Send(context.Background(), message) != nil {
					return
				}
			}
		})
	}
}

// ServeHTTP connects a harness, in place of the previous one.
func (r *rendezvous) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.headers = request.Header.Clone()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != 0 {
		w.WriteHeader(refuse)
		_, _ = io.WriteString(w, `{"error":{"code":"because","message":"not today"}}`)
		return
	}
	conn, err := wsconn.Accept(w, request, wsconn.Options{Binary: true, CloseTimeout: time.Second})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.cut()
	ended := make(chan struct{})
	r.mu.Lock()
	r.current, r.ended = conn, ended
	r.opened++
	r.mu.Unlock()
	_ = r.executor.Run(context.Background(), conn)
	close(ended)
}

// cut ends the current websocket without a close frame.
func (r *rendezvous) cut() {
	r.mu.Lock()
	conn, ended := r.current, r.ended
	r.current = nil
	r.mu.Unlock()
	if conn != nil {
		_ = conn.Close(0, "")
		<-ended
	}
}

func (r *rendezvous) set(refuse int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

func (r *rendezvous) seen() (http.Header, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers, r.opened
}

func dial(t *testing.T, o harness.Options) *harness.Harness {
	t.Helper()
	o.Logger = quiet(t)
	o.RetryMin, o.RetryMax = time.Millisecond, 20*time.Millisecond
	h, err := harness.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test took too long"))
	t.Cleanup(cancel)
	return ctx
}

// Bytes arrive complete and in order, although the websocket is cut.
func TestConn_WebsocketCuts_LoseNothing(t *testing.T) {
	r := newRendezvous(t)
	h := dial(t, harness.Options{URL: r.url, Token: func() string { return "hello" }})
	conn, err := h.Connect(within(t))
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for i := range rounds {
		want := []byte(fmt.Sprintf("%d %s", i, strings.Repeat("x", 100_000)))
		var writing sync.WaitGroup
		writing.Go(func() {
			if _, err := conn.Write(want); err != nil {
				t.Error(err)
			}
		})
		if i%2 == 1 {
			r.cut()
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != string(want) {
			t.Fatalf("round %d: %d bytes differ, %v", i, len(got), err)
		}
		writing.Wait()
	}
	headers, opened := r.seen()
	if headers.Get("Authorization") != "Bearer hello" || headers.Get("Execwire-Resumable") != "1" || opened < 2 {
		t.Errorf("opened %d websockets with %v", opened, headers)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// Rejections by the rendezvous, and a missing one, are reported precisely.
func TestDial_Rejected(t *testing.T) {
	r := newRendezvous(t)
	for _, status := range []int{401, 403, 404, 409, 429, 500} {
		r.set(status)
		_, err := harness.Dial(t.Context(), harness.Options{URL: r.url})
		var refused *harness.RefusedError
		if !errors.As(err, &refused) || refused.Status != status || refused.Text != "not today" || refused.Code != "because" {
			t.Errorf("%d: %v", status, err)
		}
	}
	address := fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t))
	_, err := harness.Dial(t.Context(), harness.Options{URL: "ws://" + address + "/executor/a?role=harness&sig=hidden"})
	if err == nil || !strings.Contains(err.Error(), "failed to connect to the rendezvous "+address) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("nobody there: %v", err)
	}
}

// A node to which a rendezvous with TLS sends a client has TLS, too, also if the scheme of the URL
// has capitals.
func TestDial_NodeWithoutTLS_Fails(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = io.WriteString(w, `{"error": {"code": "executor_elsewhere", "message": "it is at another node"}}`)
	}))
	defer elsewhere.Close()
	r := newRendezvous(t)
	for _, scheme := range []string{"wss", "WSS"} {
		_, err := harness.Dial(t.Context(), harness.Options{
			URL:    scheme + "://" + elsewhere.Listener.Addr().String() + "/executor/a?role=harness",
			TLS:    elsewhere.Client().Transport.(*http.Transport).TLSClientConfig,
			Locate: func(context.Context) (string, error) { return r.url, nil },
		})
		if err == nil || !strings.Contains(err.Error(), "has no TLS") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// While the websocket cannot be reopened, Connect reports why, and it succeeds
// afterwards.
func TestConnect_WhileOffline_Fails(t *testing.T) {
	r := newRendezvous(t)
	h := dial(t, harness.Options{URL: r.url})
	conn, err := h.Connect(within(t)) // ensures that the rendezvous has the websocket
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	r.set(http.StatusNotFound)
	r.cut()
	var refused *harness.RefusedError
	for {
		conn, err := h.Connect(within(t))
		if err == nil { // the loss was not noticed yet
			_ = conn.Close()
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
			t.Fatalf("refused with %v", err)
		}
		break
	}
	r.set(0)
	for {
		conn, err := h.Connect(within(t))
		if err == nil {
			_ = conn.Close()
			return
		}
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
}

// Plain executors are distinguished from reliable ones.
func TestConnect_PlainExecutor_Fails(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := wsconn.Accept(w, r, wsconn.Options{Binary: true, CloseTimeout: time.Second})
		if err != nil {
			t.Error(err)
			return
		}
		for {
			if _, err := conn.Receive(); err != nil {
				_ = conn.Close(wsconn.CodeNormal, "")
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	h := dial(t, harness.Options{
		URL: "ws://" + s.Listener.Addr().String() + "/executor/a?role=harness", Relay: relay.Config{ProbeTimeout: 50 * time.Millisecond},
	})
	if _, err := h.Connect(within(t)); !errors.Is(err, harness.ErrPlainExecutor) {
		t.Errorf("connected to a plain executor: %v", err)
	}
}

func TestDial_InvalidOptions_Fail(t *testing.T) {
	token := func() string { return "x" }
	for want, o := range map[string]harness.Options{
		"is not the URL of a rendezvous": {},
		"write wss://HOST/executor/ID":   {URL: "https://a/executor/a?role=harness&sig=hidden"},
		"has a user or a fragment":       {URL: "wss://a:hidden@b/executor/a?role=harness"},
		"has another role":               {URL: "wss://a/executor/a?role=executor&sig=hidden"},
		"plain text":                     {URL: "ws://192.0.2.1/executor/a?role=harness", Token: token},
	} {
		_, err := harness.Dial(t.Context(), o)
		if wrong := new(harness.OptionsError); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
