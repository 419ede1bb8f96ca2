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
