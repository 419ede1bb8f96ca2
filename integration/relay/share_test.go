package relay

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	relayharness "github.com/execwire/execwire/relay/harness"
)

// takeStreams opens streams to the executor up to the limit, and returns their number.
func takeStreams(t testing.TB, h *relayharness.Harness) (conns []net.Conn) {
	t.Helper()
	for {
		conn, err := h.Connect(harness.Context(t))
		if errors.Is(err, relayharness.ErrStreamLimit) {
			return conns
		}
		if err != nil {
			t.Fatalf("stream %d: %v", len(conns)+1, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte("PRI ")); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
}

// One harness uses all streams of a shared executor. Others can still run commands there.
func TestRelay_OneClientWithAllStreams_LeavesAPlaceToOthers(t *testing.T) {
	f := harness.NewFleet(t, "EXECWIRE_RELAY_STREAMS=8")
	if n := len(takeStreams(t, dialHarness(f, t))); n != 8 {
		t.Errorf("one harness has %d streams", n)
	}
	for range 3 {
		if got := harness.Run(t, nil, f.Through("--", "echo", "served")...); got != (harness.Result{Stdout: "served\n"}) {
			t.Errorf("another client gets %+v", got)
		}
	}
}

// A client above the limit of streams receives the reason and advice.
func TestRelay_WithoutAPlace_NamesTheLimit(t *testing.T) {
	f := harness.NewFleet(t, "EXECWIRE_RELAY_STREAMS=2")
	for range 2 { // which have as few as the next one would
		conn, err := dialHarness(f, t).Connect(harness.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte("PRI ")); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"run":     f.Through("--", "true"),
		"forward": {"forward", "--hub", f.URL(), "--executor", harness.ExecutorID, "--listen", "unix://" + harness.ShortDir(t) + "/s"},
	} {
		got := harness.NewCommand(args...).Complete(t, nil)
		for _, says := range []string{"stream_limit", "relay_streams", "streams_per_executor", "try again"} {
			if !strings.Contains(got.Stderr, says) {
				t.Errorf("%s: %q does not say %q", name, got.Stderr, says)
			}
		}
		if got.Code == 0 {
			t.Errorf("%s succeeds", name)
		}
	}
}
