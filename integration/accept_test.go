package integration

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// A process that can open no descriptor accepts nobody, and its listeners answer
// again when it can.
func TestListeners_WithoutDescriptors_AnswerAgainAfterwards(t *testing.T) {
	server, hub := serve(t), newHub(t, nil)
	gateway := newCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.urls[unixDoor])
	gateway.listen(t, 1)
	forward := newForward(t, "--server", server.urls[unixDoor])
	for _, tc := range []struct {
		name    string
		program *command
		pid     int
	}{
		{"server", server, server.serverPID(t)},
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
			for d, url := range tc.program.urls {
				network := "tcp"
				if d == unixDoor {
					network = "unix"
				}
				conn, err := net.Dial(network, tc.program.address(d))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				eventually(t, "the log has the failed accept of "+url, func() bool {
					return loggedAcceptFailure(tc.program.errors.String(), url)
				})
			}
			restore()
			for d, url := range tc.program.urls {
				expectAnswer(t, d, addressIn(url))
			}
		})
	}
}

func loggedAcceptFailure(log, url string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "could not be accepted") && strings.Contains(line, url) && strings.Contains(line, "RLIMIT_NOFILE") {
			return true
		}
	}
	return false
}

// expectAnswer checks that whoever listens at an address answers a new connection.
func expectAnswer(t *testing.T, d door, address string) {
	t.Helper()
	switch d {
	case websocketDoor, hubDoor:
		client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	default:
		_, err := grpc_health_v1.NewHealthClient(dial(t, d.network(), address)).Check(testContext(t), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
