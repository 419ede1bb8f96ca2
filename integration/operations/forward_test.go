package operations

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// An executor behind a relay is reached by a socket of this host, and output is delivered
// exactly once while websockets are cut repeatedly.
func TestForward_RelayWithCuts_LosesNothing(t *testing.T) {
	harness.Waits(t)
	f := harness.NewFleet(t)
	forward := harness.NewForward(t, "--hub", f.URL(), "--executor", harness.ExecutorID)
	expectCountsThrough(t, forward, f.Cutting)
}

// A client of a forward resumes after a lost connection to the server, as it does without one.
func TestForward_LostConnections_AreResumed(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	wire := harness.NewProxy(t, "tcp", server.Address(harness.TCPTransport))
	forward := harness.NewForward(t, "--server", wire.URL())
	expectCountsThrough(t, forward, wire.Cutting)
}

// expectCountsThrough has three clients count through a forward while connections are cut.
func expectCountsThrough(t *testing.T, forward *harness.Command, cutting func(time.Duration) (stop func() int)) {
	t.Helper()
	const lines = 100
	names := []string{"first", "second", "third"}
	clients := make([]*harness.Command, len(names))
	for i, name := range names {
		count := harness.Shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo %s $i; sleep 0.02; done; exit 3", lines, name))
		clients[i] = harness.NewCommand(append(forward.Through(harness.UnixTransport, "--"), count...)...)
		clients[i].Stdout = &harness.LockedBuffer{}
		clients[i].Launch(t)
	}
	for _, c := range clients {
		harness.Eventually(t, "each says something", func() bool { return c.Stdout.(*harness.LockedBuffer).String() != "" })
	}
	stop := cutting(500 * time.Millisecond)
	for i, c := range clients {
		code := c.Await(t)
		want := ""
		for line := range lines {
			want += fmt.Sprintln(names[i], line+1)
		}
		if got := c.Stdout.(*harness.LockedBuffer).String(); code != 3 || got != want {
			t.Errorf("it ended with %d after %d lines: %s", code, strings.Count(got, "\n"), c.Errors.String())
		}
	}
	if cuts := stop(); cuts == 0 {
		t.Error("nothing was cut")
	}
	if code := forward.Stopped(t); code != 0 {
		t.Errorf("the forward ended with %d", code)
	}
}

// A client that connects while the server is down is served once it is back.
func TestForward_ServerRestarts_Reconnects(t *testing.T) {
	server := harness.Serve(t)
	forward := harness.NewForward(t, "--server", server.URLs[harness.TCPTransport])
	if got := harness.Run(t, nil, append(forward.Through(harness.UnixTransport, "--"), harness.Shell("echo here; exit 4")...)...); got != (harness.Result{Code: 4, Stdout: "here\n"}) {
		t.Errorf("run: %+v", got)
	}
	server.Send(t, unix.SIGTERM)
	server.Await(t)
	early := harness.NewCommand(append(forward.Through(harness.UnixTransport, "--"), harness.Shell("echo early; exit 5")...)...)
	early.Stdout = &harness.LockedBuffer{}
	early.Launch(t)
	harness.Eventually(t, "the forward has no server for it", func() bool { return strings.Contains(forward.Errors.String(), "refused") })
	again := harness.NewCommand("serve", "--listen", server.URLs[harness.TCPTransport])
	again.Listen(t, 1)
	if code, out := early.Await(t), early.Stdout.(*harness.LockedBuffer).String(); code != 5 || out != "early\n" {
		t.Errorf("with another server: %d, %q, %s", code, out, early.Errors.String())
	}
}
