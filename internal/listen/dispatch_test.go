package listen_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// A protocol that the listener or its server does not serve ends the connection.
func TestDispatch_ProtocolNotServed_Closes(t *testing.T) {
	l := newLocked(t)
	for _, tc := range []struct {
		url, text  string
		alpn       []string
		grpc, http bool // what is served
	}{
		{"tcp://127.0.0.1:0", "PRI * HTTP/2.0", nil, false, true},
		{"tcp://127.0.0.1:0", "GET / HTTP/1.1", nil, true, false},
		{"unix://" + socketPath(t), "GET / HTTP/1.1", nil, true, false},
		{"grpc://127.0.0.1:0", "", nil, false, true},
		{"ws://127.0.0.1:0", "", nil, true, false},
		{"tls://127.0.0.1:0", "", []string{"h2"}, false, true},
		{"tls://127.0.0.1:0", "", []string{"h2", "http/1.1"}, true, false},
		{"grpcs://127.0.0.1:0", "PRI * HTTP/2.0", []string{}, true, true}, // gRPC needs ALPN there
	} {
		opened, err := listen.Listen(t.Context(), mustParse(t, tc.url), listen.Options{TLS: l.lock, UnauthenticatedBytes: unauthenticatedBytes})
		if err != nil {
			t.Fatal(err)
		}
		queue := listen.NewQueue()
		var grpc, http *listen.Queue
		if tc.grpc {
			grpc = queue
		}
		if tc.http {
			http = queue
		}
		ended := make(chan struct{})
		go func() { defer close(ended); opened.Dispatch(grpc, http) }()
		conn, err := net.Dial(opened.Addr().Network(), opened.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(hangGuard))
		client := conn
		if tc.alpn != nil {
			client = tls.Client(conn, &tls.Config{RootCAs: l.ca.Pool(), ServerName: "localhost", NextProtos: tc.alpn})
		}
		_, _ = io.WriteString(client, tc.text)
		if n, err := client.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s, %q: read %d, %v, want the connection closed", tc.url, tc.text, n, err)
		}
		_, _ = conn.Close(), opened.Close()
		<-ended
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// A client that does not complete its handshake, or sends no first bytes, is disconnected.
func TestDispatch_HandshakeTimeout_Closes(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	for _, url := range []string{"tcp://127.0.0.1:0", "unix://" + socketPath(t), "tls://127.0.0.1:0", "grpcs://127.0.0.1:0", "wss://127.0.0.1:0"} {
		lis := mustListenWith(t, url, listen.Options{TLS: l.lock, UnauthenticatedBytes: unauthenticatedBytes, HandshakeTimeout: 20 * time.Millisecond})
		for _, text := range []string{"", "\x16\x03"} {
			conn, err := net.Dial(lis.Addr().Network(), lis.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(hangGuard))
			_, _ = io.WriteString(conn, text)
			if n, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Errorf("%s, %q: read %d, %v, want the connection closed", url, text, n, err)
			}
		}
	}
}

func TestPutBack_ReadsFirstBytesFirst(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		_, _ = io.WriteString(a, "the rest")
		_ = a.Close()
	}()
	conn := listen.PutBack(b, []byte("first, "))
	defer func() { _ = conn.Close() }()
	if got, err := io.ReadAll(iotest.OneByteReader(conn)); string(got) != "first, the rest" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}
