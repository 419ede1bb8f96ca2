package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newForward runs a forward with these flags, and one listener.
func newForward(t testing.TB, flags ...string) *command {
	t.Helper()
	c := newCommand(append([]string{"forward", "--listen", "unix://" + filepath.Join(shortDir(t), "f")}, flags...)...)
	c.listen(t, 1)
	return c
}

// An executor behind a relay is reached by a socket of this host, and what runs
// there says everything once, though websockets are cut all the time.
func TestAForwardThroughTheRelayWhileItIsCut(t *testing.T) {
	waits(t)
	f := newFleet(t)
	forward := newForward(t, "--hub", f.url(), "--executor", executorID)
	expectCountsThrough(t, forward, f.cutting)
}

// Whoever comes through a forward resumes when its connection to the server is
// lost, as it does without one.
func TestAForwardWhoseConnectionsAreLost(t *testing.T) {
	waits(t)
	server := serve(t)
	wire := newProxy(t, "tcp", server.address(tcpDoor))
	forward := newForward(t, "--server", wire.url())
	expectCountsThrough(t, forward, wire.cutting)
}

// expectCountsThrough has three clients count through a forward while wires are cut.
func expectCountsThrough(t *testing.T, forward *command, cutting func(time.Duration) (stop func() int)) {
	t.Helper()
	const lines = 100
	names := []string{"first", "second", "third"}
	clients := make([]*command, len(names))
	for i, name := range names {
		count := shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo %s $i; sleep 0.02; done; exit 3", lines, name))
		clients[i] = newCommand(append(forward.through(unixDoor, "--"), count...)...)
		clients[i].Stdout = &lockedBuffer{}
		clients[i].launch(t)
	}
	for _, c := range clients {
		eventually(t, "each says something", func() bool { return c.Stdout.(*lockedBuffer).String() != "" })
	}
	stop := cutting(500 * time.Millisecond)
	for i, c := range clients {
		code := c.await(t)
		want := ""
		for line := range lines {
			want += fmt.Sprintln(names[i], line+1)
		}
		if got := c.Stdout.(*lockedBuffer).String(); code != 3 || got != want {
			t.Errorf("it ended with %d after %d lines: %s", code, strings.Count(got, "\n"), c.errors.String())
		}
	}
	if cuts := stop(); cuts == 0 {
		t.Error("nothing was cut")
	}
	if code := forward.stopped(t); code != 0 {
		t.Errorf("the forward ended with %d", code)
	}
}

// A client that comes while the server is away is served once it is back.
func TestAForwardOutlivesItsServer(t *testing.T) {
	server := serve(t)
	forward := newForward(t, "--server", server.urls[tcpDoor])
	if got := run(t, nil, append(forward.through(unixDoor, "--"), shell("echo here; exit 4")...)...); got != (result{code: 4, stdout: "here\n"}) {
		t.Errorf("run: %+v", got)
	}
	server.send(t, unix.SIGTERM)
	server.await(t)
	early := newCommand(append(forward.through(unixDoor, "--"), shell("echo early; exit 5")...)...)
	early.Stdout = &lockedBuffer{}
	early.launch(t)
	eventually(t, "the forward has no server for it", func() bool { return strings.Contains(forward.errors.String(), "refused") })
	again := newCommand("serve", "--listen", server.urls[tcpDoor])
	again.listen(t, 1)
	if code, out := early.await(t), early.Stdout.(*lockedBuffer).String(); code != 5 || out != "early\n" {
		t.Errorf("with another server: %d, %q, %s", code, out, early.errors.String())
	}
}
