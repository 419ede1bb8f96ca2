package executor_test

import (
	"bytes"
	"context"
	"crypto/tls"
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

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/executor"
)

// patience bounds waiting for something that must happen.
const patience = 2 * time.Minute

// query is the secret part of a rendezvous URL.
const query = "role=executor&sig=s3cr3tsignature"

// hub is a fake registry and rendezvous.
type hub struct {
	*httptest.Server
	// register answers the nth registration, from 1; nil means admit.
	register func(n int, w http.ResponseWriter, r *http.Request)
	// meet handles the nth websocket, from 1; nil closes it when the executor
	// does.
	meet func(n int, c *wsconn.Conn)
	// upgrade may answer the nth websocket request instead, and reports whether
	// it has.
	upgrade func(n int, w http.ResponseWriter) bool

	mu            sync.Mutex
	registrations []*http.Request // guarded by mu
	bodies        []string        // guarded by mu
	websockets    []*http.Request // guarded by mu
	closing       bool            // guarded by mu; no more requests are served
	serving       sync.WaitGroup
}

func newHub(t *testing.T) *hub {
	h := newUnstartedHub(t)
	h.Start()
	return h
}

func newUnstartedHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		h.mu.Lock()
		h.closing = true
		h.mu.Unlock()
		h.CloseClientConnections()
		h.Close()
		h.serving.Wait() // the server does not wait for websockets
	})
	return h
}

// admit answers a registration successfully.
func (h *hub) admit(w http.ResponseWriter, id string) {
	fmt.Fprintf(w, `{"executor_id":%q,"url":%q,"more":["ignored"]}`, id, "ws"+strings.TrimPrefix(h.URL, "http")+"/rendezvous?"+query)
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/rendezvous") {
		h.rendezvous(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	h.registrations = append(h.registrations, r)
	h.bodies = append(h.bodies, string(body))
	n := len(h.registrations)
	h.mu.Unlock()
	if h.register == nil {
		h.admit(w, "machine-1")
		return
	}
	h.register(n, w, r)
}

func (h *hub) rendezvous(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if h.closing {
		h.mu.Unlock()
		return
	}
	h.serving.Add(1)
	h.websockets = append(h.websockets, r)
	n := len(h.websockets)
	h.mu.Unlock()
	defer h.serving.Done()
	if h.upgrade != nil && h.upgrade(n, w) {
		return
	}
	c, err := wsconn.Accept(w, r, wsconn.Options{Binary: true, CloseTimeout: time.Minute})
	if err != nil {
		return
	}
	defer func() { _ = c.Close(wsconn.CodeNormal, "") }()
	if h.meet != nil {
		h.meet(n, c)
		return
	}
	_, _ = c.Receive()
}

// refuseUpgrade rejects every websocket.
func refuseUpgrade(_ int, w http.ResponseWriter) bool {
	w.WriteHeader(http.StatusInternalServerError)
	return true
}

// seen returns the requests so far.
func (h *hub) seen() (registrations, websockets []*http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*http.Request{}, h.registrations...), append([]*http.Request{}, h.websockets...)
}

// running is a running executor.
type running struct {
	t      *testing.T
	stop   context.CancelCauseFunc
	events chan event
	end    chan error
	logs   *syncBuffer
}

// eventKind is the message of a log record.
type eventKind string

const (
	registered eventKind = "the executor is registered"
	connected  eventKind = "the executor is connected"
	retrying   eventKind = "the executor is not connected; retrying"
)

// event is a log record of one of these kinds, with its attributes.
type event struct {
	kind             eventKind
	executorID, host string
	err              error
	wait             time.Duration
}

// eventHandler sends the log records about the executor's state to events.
type eventHandler struct {
	slog.Handler
	events chan<- event
}

// Handle implements slog.Handler.
func (h eventHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	e := event{kind: eventKind(r.Message)}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "executor_id":
			e.executorID = a.Value.String()
		case "rendezvous":
			e.host = a.Value.String()
		case "error":
			e.err = a.Value.Any().(error)
		case "wait":
			e.wait = a.Value.Duration()
		}
		return true
	})
	switch e.kind {
	case registered, connected, retrying:
		h.events <- e
	}
	return err
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serve receives until the websocket ends.
func serve(ctx context.Context, c *wsconn.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close(wsconn.CodeGoingAway, "") })
	defer stop()
	for {
		if _, err := c.Receive(); err != nil {
			_ = c.Close(wsconn.CodeNormal, "")
			return err
		}
	}
}

// start runs an executor of h with modified options.
func (h *hub) start(t *testing.T, change ...func(*executor.Options)) *running {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	r := &running{t: t, stop: stop, events: make(chan event, 1000), end: make(chan error, 1), logs: &syncBuffer{}}
	o := executor.Options{
		BaseURL: h.URL, ExecutorID: "machine-1", Serve: serve,
		RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond, Timeout: time.Minute,
		Logger: slog.New(eventHandler{slog.NewTextHandler(r.logs, nil), r.events}),
	}
	if h.TLS != nil {
		o.TLS = &tls.Config{RootCAs: h.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	}
	for _, c := range change {
		c(&o)
	}
	go func() { r.end <- executor.Run(ctx, o) }()
	t.Cleanup(func() {
		stop(errors.New("the test is over"))
		r.wait()
	})
	return r
}

// wait returns the result of Run.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.end:
		r.end <- err
		return err
	case <-time.After(patience):
		r.t.Fatal("the executor still runs")
		return nil
	}
}

// next returns the next event, which must be of the kind.
func (r *running) next(kind eventKind) event {
	r.t.Helper()
	select {
	case e := <-r.events:
		if e.kind != kind {
			r.t.Fatalf("the event is %+v, want %q", e, kind)
		}
		return e
	case err := <-r.end:
		r.end <- err
		r.t.Fatalf("the executor ended with %v, want %q", err, kind)
	case <-time.After(patience):
		r.t.Fatalf("no event, want %q", kind)
	}
	return event{}
}

// token is a bearer token as credentials.
type token string

func (s token) Header(context.Context) (http.Header, error) {
	return http.Header{"Authorization": {"Bearer " + string(s)}}, nil
}

func (token) String() string { return "a token" }

func withToken(o *executor.Options) { o.Credentials = token("t0psecret") }
