package listen_test

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// A door that nobody shows anything at has its connections in the order in which
// they come; those that are too many are closed at once.
func TestConnectionsAreBounded(t *testing.T) {
	for _, raw := range []string{"grpc://127.0.0.1:0", "unix://" + socketPath(t), "ws://127.0.0.1:0"} {
		t.Run(raw[:4], func(t *testing.T) {
			u, err := listen.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			var full []listen.URL
			lis, err := listen.Listen(t.Context(), u, listen.Locks{Connections: 2, Full: func(u listen.URL) { full = append(full, u) }})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lis.Close() }()
			dial := func() net.Conn {
				t.Helper()
				conn, err := net.Dial(lis.Addr().Network(), lis.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				_ = conn.SetDeadline(time.Now().Add(hangGuard))
				return conn
			}
			// come returns the server's end.
			come := func() net.Conn {
				t.Helper()
				dial()
				conn, err := lis.Accept()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			}
			first, second := come(), come()
			_ = first.Close()
			_ = first.Close() // one place, however often
			come()
			accepted := make(chan net.Conn)
			late := make(chan struct{})
			go func() {
				defer close(late)
				if conn, err := lis.Accept(); err == nil {
					accepted <- conn
				}
			}()
			if n, err := dial().Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("one too many reads %d, %v, want to be closed", n, err)
			}
			_ = second.Close()
			dial()
			select {
			case conn := <-accepted:
				_ = conn.Close()
			case <-time.After(hangGuard):
				t.Fatal("the place that was left is not taken")
			}
			<-late
			if !slices.Equal(full, []listen.URL{lis.URL()}) {
				t.Errorf("told of %v, want it once", full)
			}
		})
	}
}
