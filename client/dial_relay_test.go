package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/relay/harness"
)

func TestRelayURL(t *testing.T) {
	for _, tt := range []struct{ hub, executor, want string }{
		{"https://hub.example.org", "build-1", "relay+wss://hub.example.org/executor/build-1?role=harness"},
		{" http://127.0.0.1:80/base// ", "a_B", "relay+ws://127.0.0.1:80/base/executor/a_B?role=harness"},
		{"wss://hub.example.org", "a", ""},
		{"https://", "a", ""},
		{"https://u:p@hub", "a", ""},
		{"https://hub?x=y", "a", ""},
		{"https://hub", "", ""},
		{"https://hub", "a/b", ""},
	} {
		got, err := RelayURL(tt.hub, tt.executor)
		if wrong := new(URLError); got != tt.want || (tt.want == "") != errors.As(err, &wrong) {
			t.Errorf("%q %q: %q, %v", tt.hub, tt.executor, got, err)
		}
	}
}

// The error of a wrong scheme names the right one.
func TestDial_HubWithWrongTLS_SuggestsScheme(t *testing.T) {
	ca := testcert.NewAuthority(t)
	pair := ca.Issue("hub").TLS(t)
	locked, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := locked.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake() // fails
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = locked.Close(); <-served })
	open := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(open.Close)
	for hub, want := range map[string]string{
		"http://" + locked.Addr().String():         "as https://",
		"https://" + locked.Addr().String():        "name the authority",
		"https://" + open.Listener.Addr().String(): "as http://",
	} {
		url, err := RelayURL(hub, "a")
		if err != nil {
			t.Fatal(err)
		}
		c, dialing := Dial(t.Context(), url)
		if dialing == nil {
			_ = c.Close() // nothing is connected
		}
		_, listing := Executors(t.Context(), hub)
		for _, err := range []error{dialing, listing} {
			if typed := new(TLSError); !errors.As(err, &typed) || !strings.Contains(typed.Fix, want) {
				t.Errorf("%s: %v, want %q", hub, err, want)
			}
		}
	}
}

// Errors must not contain the signature of a URL.
func TestDial_InvalidRelayURL_Fails(t *testing.T) {
	for url, want := range map[string]string{
		"relay+ws://127.0.0.1:1/executor/a":                         "role=harness is required",
		"relay+ws://127.0.0.1:1/executor/a?role=executor&sig=hide":  "role=harness is required",
		"relay+ws://127.0.0.1:1?role=harness&sig=hide":              "relay+ws://HOST/executor/ID",
		"relay+wss:///executor/a?role=harness&sig=hide":             "relay+wss://HOST/executor/ID",
		"relay+ws://x:hide@127.0.0.1:1/executor/a?role=harness":     "relay+ws://HOST/executor/ID",
		"relay+ws://127.0.0.1:1/executor/a?role=harness&sig=hide":   "refused",
		"relay+ws://127.0.0.1:1/%zz/executor?role=harness&sig=hide": "tcp://HOST:PORT",
	} {
		c, err := Dial(t.Context(), url)
		if err == nil {
			_ = c.Close() // nothing is connected
			t.Errorf("%s: connected", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hide") {
			t.Errorf("%s: %v, want %q and nothing of the signature", url, err, want)
		}
	}
}

// rejectingHub is a hub that answers with the current status.
func rejectingHub(t *testing.T, answer *atomic.Int32) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", int(answer.Load()))
	}))
	t.Cleanup(server.Close)
	return "relay+ws" + strings.TrimPrefix(server.URL, "http") + "/executor/a?role=harness"
}

func TestDial_HubRejectsClient_EndsWaitingCalls(t *testing.T) {
	var answer atomic.Int32
	url := rejectingHub(t, &answer)
	endpoint, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &recordingDialer{endpoint: endpoint}
	if err := (&dialConfig{}).relayOptions(dialer); err != nil {
		t.Fatal(err)
	}
	for status, final := range map[int32]bool{
		http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusNotFound: false, http.StatusServiceUnavailable: false,
	} {
		answer.Store(status)
		if _, err := dialer.dial(t.Context(), ""); err == nil {
			t.Fatal("it let the client in")
		}
		life := newLifetime()
		life.rejection = dialer.rejection
		var lost *ConnectionLostError
		var refused *harness.RefusedError
		err := life.explain(errCut)
		if is := errors.As(err, &lost) && errors.As(err, &refused); is != final {
			t.Errorf("%d: %v", status, err)
		}
		if life.over() != nil {
			t.Errorf("%d: nobody is asked again", status)
		}
	}
}

// At a hub of several nodes the client asks for the URL of the executor's node, which gets no
// token. With a URL that it got from the hub it does not ask.
func TestDial_ExecutorElsewhere_IsLocated(t *testing.T) {
	const token = "a-token"
	var asked, arrived atomic.Int32
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		if r.URL.Query().Get("sig") != "signed" || r.Header.Get("Authorization") != "" {
			t.Errorf("the node gets %s, %v", r.URL, r.Header)
		}
		http.Error(w, "this is the node", http.StatusNotFound)
	}))
	t.Cleanup(node.Close)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMisdirectedRequest)
			_, _ = io.WriteString(w, `{"error":{"code":"executor_elsewhere","message":"another node"}}`)
			return
		}
		asked.Add(1)
		if r.URL.Path != "/base/cloud/executor/a/connect" || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("asked %s, %v", r.URL, r.Header)
		}
		_, _ = fmt.Fprintf(w, `{"url":"ws%s/executor/a?role=harness&sig=signed"}`, strings.TrimPrefix(node.URL, "http"))
	}))
	t.Cleanup(hub.Close)
	url, err := RelayURL(hub.URL+"/base", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url, want string
		asked     int32
	}{
		{url, "this is the node", 1},
		{url + "&sig=old", "another node", 0},
	} {
		asked.Store(0)
		arrived.Store(0)
		c, err := Dial(t.Context(), tt.url, WithToken(token))
		if err == nil {
			_ = c.Close() // nothing is connected
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || asked.Load() != tt.asked || arrived.Load() != tt.asked {
			t.Errorf("%s: %v, asked %d and tried %d times; want %q, %d", tt.url, err, asked.Load(), arrived.Load(), tt.want, tt.asked)
		}
	}
}
