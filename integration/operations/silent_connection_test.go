package operations

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// A silent connection does not prevent a server from ending: it is closed, and the exit code
// is 0.
func TestSilentConnection_LetsTheServerEnd(t *testing.T) {
	server := harness.Serve(t, "EXECWIRE_SHUTDOWN_GRACE_PERIOD="+harness.StepTimeout.String())
	var silent []net.Conn
	for _, d := range []harness.Transport{harness.TCPTransport, harness.UnixTransport, harness.WebsocketTransport} {
		for _, first := range []string{"", "PRI * HTTP/2.0\r\n"} {
			conn, err := net.Dial(map[bool]string{false: "tcp", true: "unix"}[d == harness.UnixTransport], server.Address(d))
			if err == nil {
				_, err = conn.Write([]byte(first))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			silent = append(silent, conn)
		}
		// One that came later has been accepted.
		if got := harness.Run(t, nil, server.Through(d, "--", "echo", "ran")...); got != (harness.Result{Stdout: "ran\n"}) {
			t.Fatalf("%s: %+v", d, got)
		}
	}
	server.Send(t, unix.SIGTERM)
	if code := server.Await(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(harness.StepTimeout))
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Errorf("the silent connection to %v: %v", conn.RemoteAddr(), err)
		}
	}
}
