package relay

import (
	"errors"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// TestProxy_DamagesConnections checks that the proxy cuts and stalls as other tests need.
func TestProxy_DamagesConnections(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(harness.ShortDir(t), "s")
			}
			server, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			defer serving.Wait()
			defer func() { _ = server.Close() }()
			serving.Go(func() {
				for conn, err := server.Accept(); err == nil; conn, err = server.Accept() {
					// Not from connection to connection: that would splice, by
					// pipes that the runtime keeps.
					_, _ = io.Copy(struct{ io.Writer }{conn}, conn)
					_ = conn.Close()
				}
			})
			p := harness.NewProxy(t, network, server.Addr().String())
			p.CutAfter(func() int64 { return 13 }) // 5 up, 5 down, 3 of the next 5 up
			conn, err := net.Dial(network, p.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			got := make([]byte, 16)
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if n, err := io.ReadFull(conn, got[:5]); n != 5 || err != nil {
				t.Fatalf("read %d bytes, %v; want all that was within the budget", n, err)
			}
			if _, err := conn.Write([]byte("world")); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(got); n > 3 || err == nil && n == 0 {
				t.Fatalf("read %d bytes, %v; want the connection cut", n, err)
			}
			harness.Eventually(t, "the cut is counted", func() bool { return p.CutCount() == 1 })
			if _, err := conn.Read(got); err == nil || errors.Is(err, net.ErrClosed) {
				t.Errorf("a connection that was cut reads %v", err)
			}
		})
	}
}
