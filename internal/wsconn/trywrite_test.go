package wsconn_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/wsconn"
)

// hidingConn hides from net/http that a connection has TLS, but not what it wraps.
type hidingConn struct{ net.Conn }

func (c hidingConn) NetConn() net.Conn { return c.Conn }

type hidingListener struct{ net.Listener }

func (l hidingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hidingConn{conn}, nil
}

// Nothing is written below TLS, even if the listener hides it from net/http.
func TestTrySend_HiddenTLS_IsEncrypted(t *testing.T) {
	authority := testcert.NewAuthority(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, wsconn.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		c.TrySend([]byte("hello"))
		_ = c.Close(wsconn.CodeNormal, "")
	})}
	go func() {
		_ = server.Serve(hidingListener{tls.NewListener(inner, &tls.Config{Certificates: []tls.Certificate{authority.Issue("server").TLS(t)}})})
	}()
	t.Cleanup(func() { _ = server.Close() })
	c, err := wsconn.Dial(t.Context(), "wss://"+inner.Addr().String(), wsconn.DialOptions{TLS: &tls.Config{RootCAs: authority.Pool()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(wsconn.CodeNormal, "") }()
	if got, err := c.Receive(); string(got) != "hello" {
		t.Errorf("received %q, %v", got, err)
	}
}
