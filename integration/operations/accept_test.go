package operations

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// A process without free descriptors accepts no connection, and its listeners answer
// again when it can.
func TestListeners_WithoutDescriptors_AnswerAgainAfterwards(t *testing.T) {
	server, hub := harness.Serve(t), harness.NewHub(t, nil)
	gateway := harness.NewCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.URLs[harness.UnixTransport])
	gateway.Listen(t, 1)
	forward := harness.NewForward(t, "--server", server.URLs[harness.UnixTransport])
	for _, tc := range []struct {
		name    string
		program *harness.Command
		pid     int
	}{
		{"server", server, server.ServerPID(t)},
		{"gateway", gateway, gateway.Process.Pid},
		{"forward", forward, forward.Process.Pid},
		{"hub", hub, hub.Process.Pid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before unix.Rlimit
			if err := unix.Prlimit(tc.pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
				t.Fatal(err)
			}
			restore := func() {
				if err := unix.Prlimit(tc.pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
					t.Fatal(err)
				}
			}
			defer restore()
			if err := unix.Prlimit(tc.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}, nil); err != nil {
				t.Fatal(err)
			}
			for d, url := range tc.program.URLs {
				network := "tcp"
				if d == harness.UnixTransport {
					network = "unix"
				}
				conn, err := net.Dial(network, tc.program.Address(d))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				harness.Eventually(t, "the log has the failed accept of "+url, func() bool {
					return loggedAcceptFailure(tc.program.Errors.String(), harness.AddressOf(url))
				})
			}
			restore()
			for d, url := range tc.program.URLs {
				expectAnswer(t, d, harness.AddressOf(url))
			}
		})
	}
}

func loggedAcceptFailure(log, address string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "failed to accept") && strings.Contains(line, address) && strings.Contains(line, "RLIMIT_NOFILE") {
			return true
		}
	}
	return false
}

// expectAnswer checks that the listener at an address answers a new connection.
func expectAnswer(t *testing.T, d harness.Transport, address string) {
	t.Helper()
	switch d {
	case harness.WebsocketTransport, harness.HubTransport:
		client := http.Client{Timeout: harness.StepTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	default:
		_, err := grpc_health_v1.NewHealthClient(harness.Dial(t, d.Network(), address)).Check(harness.Context(t), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
