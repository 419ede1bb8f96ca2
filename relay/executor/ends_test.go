package executor_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/executor"
	"github.com/execwire/execwire/relay/rendezvous"
)

// newEndpoint returns an executor's endpoint that echoes messages, and its Serve
// function.
func newEndpoint(t *testing.T) (*relay.Endpoint, func(context.Context, *wsconn.Conn) error) {
	t.Helper()
	e := relay.NewEndpoint(relay.Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = e.Close(relay.ReasonGoingAway) })
	return e, func(ctx context.Context, c *wsconn.Conn) error { return e.Run(ctx, c) }
}

// echo echoes the first message of each stream, one stream after the other.
func echo(ctx context.Context, e *relay.Endpoint) {
	for {
		s, err := e.Accept(ctx)
		if err != nil {
			return
		}
		if message, err := s.Receive(ctx); err == nil {
			_ = s.Send(ctx, message)
		}
	}
}

// newRendezvous starts a hub that accepts a token, and returns its URL.
func newRendezvous(t *testing.T) string {
	t.Helper()
	member := auth.UnrestrictedMember(auth.Principal{Name: "fleet"})
	hub, err := rendezvous.New(rendezvous.Config{
		Authenticate: func(r *http.Request) (auth.Member, error) {
			if r.Header.Get("Authorization") != "Bearer t0psecret" {
				return auth.Member{}, &auth.Error{Kind: auth.KindTokenInvalid, Subject: "caller", Err: errors.New("it is another one")}
			}
			return member, nil
		},
		Recall: func(*http.Request, auth.Principal) (auth.Member, error) { return member, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(hub)
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server.URL
}

// startAt runs an executor at a hub.
func startAt(t *testing.T, url string, change ...func(*executor.Options)) *running {
	t.Helper()
	usual := func(o *executor.Options) {
		withToken(o)
		o.Name, o.Version, o.Labels = "Röck", "v1 +dirty", map[string]string{"zone": "a b"}
	}
	return (&hub{Server: &httptest.Server{URL: url}}).start(t, append([]func(*executor.Options){usual}, change...)...)
}

// dialHarness connects to machine-1. It retries, because the executor may know
// that it is connected before the hub has recorded it.
func dialHarness(t *testing.T, url string) *wsconn.Conn {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer t0psecret"}, "Execwire-Resumable": {"1"}}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		c, err := wsconn.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/executor/machine-1?role=harness",
			wsconn.DialOptions{Options: wsconn.Options{Binary: true}, Header: header})
		refused, ok := errors.AsType[*wsconn.RefusedError](err)
		switch {
		case err == nil:
			return c
		case !ok || refused.Status != http.StatusNotFound || time.Since(begin) > patience:
			t.Fatal(err)
		}
	}
}

func TestRun_WithHub(t *testing.T) {
	url := newRendezvous(t)
	e, serve := newEndpoint(t)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	go echo(ctx, e)
	r := startAt(t, url, func(o *executor.Options) { o.Serve = serve })
	r.next(registered)
	r.next(connected)

	harness := relay.NewEndpoint(relay.Config{Role: relay.Harness, Logger: slog.New(slog.DiscardHandler)})
	defer func() { _ = harness.Close(relay.ReasonClosed) }()
	c := dialHarness(t, url)
	go func() { _ = harness.Run(ctx, c) }()
	s, err := harness.Open("")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(ctx, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if answer, err := s.Receive(ctx); err != nil || string(answer) != "hello" {
		t.Errorf("the answer is %q, %v", answer, err)
	}

	// A second executor with the same id replaces the first.
	_, serveOther := newEndpoint(t)
	other := startAt(t, url, func(o *executor.Options) { o.Serve = serveOther })
	other.next(registered)
	other.next(connected)
	if _, ok := errors.AsType[*executor.SupersededError](r.wait()); !ok {
		t.Errorf("the first ended with %v, want a SupersededError", r.wait())
	}
}

func TestRun_HubRejects_Ends(t *testing.T) {
	_, serve := newEndpoint(t)
	err := startAt(t, newRendezvous(t), func(o *executor.Options) { o.Credentials, o.Serve = token("wrong"), serve }).wait()
	status, ok := errors.AsType[*executor.StatusError](err)
	if !ok || status.Status != http.StatusUnauthorized || status.Code == "" || strings.Contains(err.Error(), "wrong") {
		t.Errorf("Run = %v, want a StatusError", err)
	}
}

// An endpoint that was closed is not served again.
func TestRun_EndpointClosed_Ends(t *testing.T) {
	h := newHub(t)
	e, serve := newEndpoint(t)
	r := h.start(t, func(o *executor.Options) { o.Serve = serve })
	r.next(registered)
	r.next(connected)
	if err := e.Close(relay.ReasonGoingAway); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
}
