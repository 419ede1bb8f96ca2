package integration

import (
	"strings"
	"testing"
)

// untilClosed waits until ps shows that the processes have closed, which is not to see
// how they ended.
func (c *command) untilClosed(t testing.TB, d door, ids ...string) {
	t.Helper()
	eventually(t, strings.Join(ids, ", ")+" have closed", func() bool {
		closed := map[string]bool{}
		for _, p := range objects[listed](t, run(t, nil, c.remotely(d, "ps", "-a", "--json")...).stdout) {
			closed[p.ID] = p.State == "closed"
		}
		for _, id := range ids {
			if !closed[id] {
				return false
			}
		}
		return true
	})
}

// untilRemoved waits until the record of a process is gone.
func (c *command) untilRemoved(t testing.TB, d door, id string) {
	t.Helper()
	eventually(t, "the record of "+id+" is removed", func() bool {
		return !strings.Contains(run(t, nil, c.remotely(d, "ps", "-a", "-q")...).stdout, id+"\n")
	})
}

// The result of a detached process waits for the one who asks for it, also after
// records whose exit was seen are gone.
func TestDetachedResultIsKeptUntilItIsSeen(t *testing.T) {
	waits(t)
	server := serve(t, "EXECWIRE_CLOSED_PROCESS_RETENTION=1ms")
	for _, id := range []string{"printed", "awaited", "taken"} {
		server.detach(t, unixDoor, id, shell("echo said; exit 3"))
	}
	server.untilClosed(t, unixDoor, "printed", "awaited", "taken")
	if seen := run(t, nil, server.through(unixDoor, append([]string{"--id", "seen", "--"}, shell("exit 4")...)...)...); seen.code != 4 {
		t.Fatalf("run: %+v", seen)
	}
	server.untilRemoved(t, unixDoor, "seen")

	server.expectCommand(t, unixDoor, result{stdout: "said\n"}, "logs", "printed")
	server.expectCommand(t, unixDoor, result{code: 3}, "wait", "awaited")
	server.expectCommand(t, unixDoor, result{code: 3, stdout: "said\n"}, "attach", "taken")
	for _, id := range []string{"printed", "awaited", "taken"} {
		server.untilRemoved(t, unixDoor, id)
	}
}

// A second run under one id is another run: it is refused while there is a record of the
// first, or takes its place, and never prints what the first has written.
func TestRunUnderATakenIDIsRefusedOrReplaces(t *testing.T) {
	waits(t)
	server := serve(t)
	again := func(flags ...string) result {
		t.Helper()
		return run(t, nil, server.through(unixDoor, append(append([]string{"--id", "build"}, flags...), append([]string{"--"}, shell("echo said")...)...)...)...)
	}
	said := result{stdout: "said\n"}
	if got := again(); got != said {
		t.Fatalf("the first run: %+v", got)
	}
	refused := func(got result, progress string) {
		t.Helper()
		if got.code != 125 || got.stdout != "" || !strings.Contains(got.stderr, `process "build" already exists, by another start: `+progress) ||
			!strings.Contains(got.stderr, "execwire logs build") || !strings.Contains(got.stderr, "--replace") {
			t.Errorf("a run under a taken id: %+v", got)
		}
	}
	refused(again(), "it has ended")
	refused(again("--detach"), "it has ended")
	if got := again("--replace"); got != said {
		t.Errorf("run --replace: %+v", got)
	}
	if got := again("--replace", "--detach"); got != (result{stdout: "build\n"}) {
		t.Errorf("run --replace --detach: %+v", got)
	}
	server.untilClosed(t, unixDoor, "build")
	if got := again("--replace"); got != said { // what nobody has seen is replaced, too
		t.Errorf("run --replace after a detached process: %+v", got)
	}
	server.detach(t, unixDoor, "lives", []string{"sleep", "1000"})
	got := run(t, nil, server.through(unixDoor, "--id", "lives", "--replace", "--", "true")...)
	if got.code != 125 || !strings.Contains(got.stderr, "it runs") || !strings.Contains(got.stderr, "execwire kill lives") {
		t.Errorf("run --replace of a process that runs: %+v", got)
	}
	if got := run(t, nil, server.through(unixDoor, "--replace", "--", "true")...); got.code != 2 || !strings.Contains(got.stderr, "--id") {
		t.Errorf("run --replace without --id: %+v", got)
	}
}
