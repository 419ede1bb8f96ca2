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

// patience guards tests against hanging.
const patience = 2 * time.Minute

// query is what makes the URL of a rendezvous a secret.
const query = "role=executor&sig=s3cr3tsignature"

// hub is a registry and a rendezvous of a test.
type hub struct {
	*httptest.Server
	// register answers the nth registration, from 1; nil is answered by admit.
	register func(n int, w http.ResponseWriter, r *http.Request)
	// meet has the nth websocket, from 1; nil closes it when the executor does.
	meet func(n int, c *wsconn.Conn)
	// upgrade may answer the nth request for a websocket instead, and says
	// whether it has.
	upgrade func(n int, w http.ResponseWriter) bool

	mu            sync.Mutex
	registrations []*http.Request // guarded by mu
	bodies        []string        // guarded by mu
	websockets    []*http.Request // guarded by mu
	closing       bool            // guarded by mu; nobody is served any more
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
		h.serving.Wait() // the server does not know websockets
	})
	return h
}

// admit answers a registration.
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

// refuseUpgrade refuses every websocket.
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

// running is an executor of a test.
type running struct {
	t      *testing.T
	stop   context.CancelCauseFunc
	events chan executor.Event
	end    chan error
	logs   *syncBuffer
}

// syncBuffer is a buffer for several goroutines.
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

// serve receives until the websocket is over.
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

// start runs an executor of h with options that change makes other than usual.
func (h *hub) start(t *testing.T, change ...func(*executor.Options)) *running {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	r := &running{t: t, stop: stop, events: make(chan executor.Event, 1000), end: make(chan error, 1), logs: &syncBuffer{}}
	o := executor.Options{
		BaseURL: h.URL, ExecutorID: "machine-1", Serve: serve,
		RetryFirst: time.Millisecond, RetryMost: 4 * time.Millisecond, Timeout: time.Minute,
		Notify: func(e executor.Event) { r.events <- e },
		Logger: slog.New(slog.NewTextHandler(r.logs, nil)),
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

// wait returns what Run returned.
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

// next returns the next event, which has to be of the kind.
func (r *running) next(kind executor.EventKind) executor.Event {
	r.t.Helper()
	select {
	case e := <-r.events:
		if e.Kind != kind {
			r.t.Fatalf("the event is %+v, want kind %d", e, kind)
		}
		return e
	case err := <-r.end:
		r.end <- err
		r.t.Fatalf("the executor ended with %v, want an event of kind %d", err, kind)
	case <-time.After(patience):
		r.t.Fatalf("no event, want kind %d", kind)
	}
	return executor.Event{}
}

// token are credentials of a test.
type token string

func (s token) Header(context.Context) (http.Header, error) {
	return http.Header{"Authorization": {"Bearer " + string(s)}}, nil
}

func (token) String() string { return "a token" }

func withToken(o *executor.Options) { o.Credentials = token("t0psecret") }
