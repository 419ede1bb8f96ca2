package integration

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/execwire/execwire/relay/harness"
)

// takeStreams opens streams to the executor until there is no place for one more,
// and returns how many those are.
func takeStreams(t testing.TB, h *harness.Harness) (conns []net.Conn) {
	t.Helper()
	for {
		conn, err := h.Connect(testContext(t))
		if errors.Is(err, harness.ErrStreamLimit) {
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

// One harness takes all streams of a shared executor. Others run commands there all
// the same.
func TestRelay_OneClientWithAllStreams_LeavesAPlaceToOthers(t *testing.T) {
	f := newFleet(t, "EXECWIRE_RELAY_STREAMS=8")
	if n := len(takeStreams(t, f.dialHarness(t))); n != 8 {
		t.Errorf("one harness has %d streams", n)
	}
	for range 3 {
		if got := run(t, nil, f.through("--", "echo", "served")...); got != (result{stdout: "served\n"}) {
			t.Errorf("another client gets %+v", got)
		}
	}
}

// A client that there is no place for learns why, and what to do.
func TestRelay_WithoutAPlace_NamesTheLimit(t *testing.T) {
	f := newFleet(t, "EXECWIRE_RELAY_STREAMS=2")
	for range 2 { // which have as few as the next one would
		conn, err := f.dialHarness(t).Connect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte("PRI ")); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"run":     f.through("--", "true"),
		"forward": {"forward", "--hub", f.url(), "--executor", executorID, "--listen", "unix://" + shortDir(t) + "/s"},
	} {
		got := newCommand(args...).complete(t, nil)
		for _, says := range []string{"stream_limit", "relay_streams", "streams_per_executor", "try again"} {
			if !strings.Contains(got.stderr, says) {
				t.Errorf("%s: %q does not say %q", name, got.stderr, says)
			}
		}
		if got.code == 0 {
			t.Errorf("%s succeeds", name)
		}
	}
}
