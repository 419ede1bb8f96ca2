package executor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/executor"
)

func TestRun_RegistersAndConnects(t *testing.T) {
	h := newHub(t)
	got := make(chan string, 1)
	h.meet = func(_ int, c *wsconn.Conn) {
		_ = c.Send([]byte("frame"))
		_, _ = c.Receive()
	}
	r := h.start(t, withToken, func(o *executor.Options) {
		o.BaseURL, o.ExecutorID = " "+o.BaseURL+"/api// ", " machine-1\t"
		o.Name, o.Version, o.Labels = "Röck, 1 = 2", "v1.2.3", map[string]string{"zone": "a b,c=d", "arch": "amd64"}
		o.Serve = func(ctx context.Context, c *wsconn.Conn) error {
			message, err := c.Receive()
			if err != nil {
				return err
			}
			got <- string(message)
			return serve(ctx, c)
		}
	})
	if e := r.next(registered); e.executorID != "machine-1" {
		t.Errorf("registered as %q", e.executorID)
	}
	if e := r.next(connected); !strings.Contains(h.URL, e.host) || e.host == "" {
		t.Errorf("connected to %q", e.host)
	}
	if message := <-got; message != "frame" {
		t.Errorf("received %q", message)
	}
	registrations, websockets := h.seen()
	request := registrations[0]
	if request.Method != http.MethodPost || request.RequestURI != "/api/cloud/executor/machine-1/register" || h.bodies[0] != "" || request.ContentLength != 0 {
		t.Errorf("%s %s with %d bytes", request.Method, request.RequestURI, request.ContentLength)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer t0psecret", "Accept": "*/*", "Content-Type": "", "Execwire-Name": "R%C3%B6ck%2C%201%20%3D%202",
		"Execwire-Version": "v1.2.3", "Execwire-Labels": "arch=amd64,zone=a%20b%2Cc%3Dd",
	} {
		if got := request.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if websockets[0].URL.RawQuery != query || websockets[0].Header.Get("Authorization") != "" || websockets[0].Header.Get("Origin") != "" {
		t.Errorf("the websocket was asked for with %q and %v", websockets[0].URL.RawQuery, websockets[0].Header)
	}
	r.stop(errors.New("enough"))
	if err := r.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	for _, secret := range []string{"t0psecret", "s3cr3tsignature"} {
		if strings.Contains(r.logs.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, r.logs)
		}
	}
}

// However a websocket ends, the executor registers again as the same instance.
func TestRun_ConnectionLost_Reregisters(t *testing.T) {
	h := newHub(t)
	h.meet = func(n int, c *wsconn.Conn) {
		switch n {
		case 1:
			_ = c.Close(wsconn.CodeNormal, "")
		case 2:
			_ = c.Close(wsconn.CodeGoingAway, "restart")
		case 3:
			_ = c.Close(0, "")
		default:
			_, _ = c.Receive()
		}
	}
	r := h.start(t)
	for n := 1; n <= 3; n++ {
		r.next(registered)
		r.next(connected)
		e := r.next(retrying)
		if !strings.Contains(e.err.Error(), "lost the connection to the rendezvous "+strings.TrimPrefix(h.URL, "http://")) || e.wait <= 0 || e.wait > time.Millisecond+1 {
			t.Errorf("after connection %d: %v, wait %v; want that it was lost, and the first wait each time", n, e.err, e.wait)
		}
	}
	r.next(registered)
	r.next(connected)
	registrations, _ := h.seen()
	instance := registrations[0].Header.Get("Execwire-Instance")
	for _, request := range registrations {
		if got := request.Header.Get("Execwire-Instance"); got != instance || len(got) != 36 {
			t.Errorf("the instance is %q, at first %q", got, instance)
		}
	}
}

func TestRun_WebsocketRejected_Reregisters(t *testing.T) {
	h := newHub(t)
	h.upgrade = func(n int, w http.ResponseWriter) bool {
		if n <= 4 {
			http.Error(w, "no\x1b[31m "+query+" nor s3cr3tsignature alone", []int{404, 409, 401, 500}[n-1])
		}
		return n <= 4
	}
	r := h.start(t)
	for n := 1; n <= 4; n++ {
		r.next(registered)
		e := r.next(retrying)
		if status := fmt.Sprintf("status %d: ", []int{404, 409, 401, 500}[n-1]); !strings.Contains(e.err.Error(), status) {
			t.Fatalf("attempt %d: %v, want %q", n, e.err, status)
		}
		if text := e.err.Error(); strings.ContainsAny(text, "\x1b") || strings.Contains(text, "s3cr3t") {
			t.Errorf("attempt %d: %q", n, text)
		}
	}
	r.next(registered)
	r.next(connected)
	if strings.Contains(r.logs.String(), "s3cr3t") {
		t.Errorf("the log has the signature:\n%s", r.logs)
	}
}

func TestRun_FailedToConnect_HidesSignature(t *testing.T) {
	gone := newHub(t)
	gone.Close()
	h := newHub(t)
	h.register = func(_ int, w http.ResponseWriter, _ *http.Request) { gone.admit(w, "machine-1") }
	r := h.start(t)
	r.next(registered)
	e := r.next(retrying)
	if text := e.err.Error(); !strings.Contains(text, "failed to connect to the rendezvous") || !strings.Contains(text, "/rendezvous?…: ") {
		t.Fatalf("%v, want the URL without its query", e.err)
	}
	for err := e.err; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%T says %q", err, err)
		}
	}
}

// Two executors with one id do not take turns forever.
func TestRun_Superseded_Ends(t *testing.T) {
	h := newHub(t)
	h.meet = func(_ int, c *wsconn.Conn) { _ = c.Close(4001, "superseded") }
	err := h.start(t).wait()
	superseded, ok := errors.AsType[*executor.SupersededError](err)
	if !ok || superseded.ExecutorID != "machine-1" || superseded.Reason != "superseded" || !strings.Contains(err.Error(), "--executor-id") {
		t.Errorf("Run = %v, want a SupersededError", err)
	}
	if registrations, _ := h.seen(); len(registrations) != 1 {
		t.Errorf("it registered %d times", len(registrations))
	}
}

// A rendezvous behind a proxy may be gone although the TCP connection is alive.
func TestRun_NoPong_ReconnectsAfterTimeout(t *testing.T) {
	h := newHub(t)
	silent := make(chan struct{})
	speak := sync.OnceFunc(func() { close(silent) })
	t.Cleanup(speak)
	h.meet = func(n int, c *wsconn.Conn) {
		if n == 1 {
			<-silent // a peer that does not receive sends no pongs
			return
		}
		_, _ = c.Receive()
	}
	r := h.start(t, func(o *executor.Options) {
		o.PingInterval, o.PongTimeout, o.Websocket.CloseTimeout = time.Millisecond, 10*time.Millisecond, time.Millisecond
	})
	r.next(registered)
	r.next(connected)
	e := r.next(retrying)
	speak()
	if !strings.Contains(e.err.Error(), "no pong for 10ms") {
		t.Errorf("%v, want that there was no pong", e.err)
	}
	r.next(registered)
}

func TestRun_ContextEnds_Returns(t *testing.T) {
	t.Run("while registering", func(t *testing.T) {
		h := newHub(t)
		asked := make(chan struct{})
		h.register = func(_ int, _ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() }
		r := h.start(t)
		<-asked
		r.stop(errors.New("enough"))
		if err := r.wait(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Run("while connecting", func(t *testing.T) {
		h := newHub(t)
		asked, proceed := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(proceed) })
		h.upgrade = func(int, http.ResponseWriter) bool { close(asked); <-proceed; return true }
		r := h.start(t)
		<-asked
		r.stop(errors.New("enough"))
		if err := r.wait(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Run("while waiting", func(t *testing.T) {
		h := newHub(t)
		h.register = func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
		r := h.start(t, func(o *executor.Options) { o.RetryMin, o.RetryMax = time.Hour, time.Hour })
		r.next(retrying)
		r.stop(errors.New("enough"))
		if err := r.wait(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
