package client

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/testcert"
)

func TestNewTransport_InvalidURL_Fails(t *testing.T) {
	token := testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte("secret"))
	for url, want := range map[string]string{
		"ws://127.0.0.1:1":  "JSON-RPC",
		"wss://127.0.0.1:1": "JSON-RPC",
		"stdio:execwire":    "JSON-RPC",
		"http://x":          "tcp://HOST:PORT",
		"":                  "tcp://HOST:PORT",
	} {
		_, err := NewTransport(url)
		if wrong := new(URLError); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"grpc://127.0.0.1:1", "grpcs://127.0.0.1:1", "unix:///nowhere"} {
		_, err := NewTransport(url, WithTokenFile(token))
		if wrong := new(CredentialError); !errors.As(err, &wrong) || !strings.Contains(err.Error(), url) || strings.Contains(err.Error(), "secret") {
			t.Errorf("a token for %s: %v", url, err)
		}
	}
	if _, err := NewTransport("relay+wss://127.0.0.1:1/executor/a?role=harness", WithTokenFile(token)); err != nil {
		t.Errorf("a token for a hub: %v", err)
	}
	locked, err := NewTransport("relay+wss://127.0.0.1:1/executor/a?role=harness&sig=secret")
	if err != nil || strings.Contains(locked.URL(), "secret") {
		t.Errorf("a URL that is signed is shown as %v, %v", locked, err)
	}
	if _, err := locked.Connect(t.Context()); !errors.As(err, new(*DialError)) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a hub that is not there: %v", err)
	}
}

// With grpcs:// the connection is inside TLS, to the requested server.
func TestTransport_Connect_TLSHandshake(t *testing.T) {
	ca := testcert.NewAuthority(t)
	pair := ca.Issue("server").TLS(t)
	server, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for conn, err := server.Accept(); err == nil; conn, err = server.Accept() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = server.Close(); <-served })
	url := "grpcs://" + server.Addr().String()
	trusted := testcert.WriteFile(t, filepath.Join(t.TempDir(), "ca.pem"), ca.PEM)
	transport, err := NewTransport(url, WithTLS(TLSFiles{CA: trusted}))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("hello came back as %q, %v", got, err)
	}
	_ = conn.Close()

	strange, err := NewTransport(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strange.Connect(t.Context()); !errors.As(err, new(*TLSError)) || !errors.As(err, new(*DialError)) {
		t.Errorf("a server of a strange authority: %v", err)
	}
	plain, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = plain.Close()
	gone, err := NewTransport("unix://" + plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Connect(t.Context()); !errors.As(err, new(*DialError)) {
		t.Errorf("a server that is gone: %v", err)
	}
}
