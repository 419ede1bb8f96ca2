package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/testcert"
)

// backends are what confines, each with control groups and without.
func backends(t *testing.T, f func(t *testing.T, settings ...string)) {
	for _, backend := range []string{"bubblewrap", "landlock"} {
		for _, cgroup := range []string{"auto", "off"} {
			t.Run(backend+"/cgroup_"+cgroup, func(t *testing.T) {
				f(t, "EXECWIRE_SANDBOX_BACKENDS="+backend, "EXECWIRE_CGROUP="+cgroup)
			})
		}
	}
}

// nested is a command line that runs argv on the server by a process of the server.
func (c *command) nested(outer, inner door, flags []string, argv ...string) []string {
	args := append(append([]string{"run", "--server", c.urls[outer]}, flags...), "--", execwire)
	return append(append(args, c.through(inner, "--")...), argv...)
}

// A confined process with the network cannot have its own server start another one
// that is not confined.
func TestConfined_ProcessesAreRefusedByTheirOwnServer(t *testing.T) {
	slow(t)
	confined := []string{"--sandbox", "read-only", "--network"}
	backends(t, func(t *testing.T, settings ...string) {
		server := serve(t, settings...)
		for _, d := range []door{tcpDoor, websocketDoor, unixDoor} {
			got := run(t, nil, server.nested(unixDoor, d, confined, "echo", "escaped")...)
			if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, "a confined process is not accepted without a token") {
				t.Errorf("by %s: %+v", d, got)
			}
		}
		// Those that are not confined are accepted as before.
		for _, d := range []door{tcpDoor, websocketDoor, unixDoor} {
			if got := run(t, nil, server.through(d, "--", "echo", "outside")...); got != (result{stdout: "outside\n"}) {
				t.Errorf("from outside by %s: %+v", d, got)
			}
			if got := run(t, nil, server.nested(unixDoor, d, nil, "echo", "inside")...); got != (result{stdout: "inside\n"}) {
				t.Errorf("from a process that is not confined by %s: %+v", d, got)
			}
		}
	})
}

// What a confined process leaves in the background is confined, too.
func TestConfined_DescendantsAreRefusedByTheirOwnServer(t *testing.T) {
	slow(t)
	confined := []string{"--sandbox", "read-only", "--network"}
	for _, backend := range []string{"bubblewrap", "landlock"} {
		server := serve(t, "EXECWIRE_SANDBOX_BACKENDS="+backend, "EXECWIRE_CGROUP=off")
		for _, d := range []door{tcpDoor, unixDoor} {
			// The shell, which cat waits in, is no ancestor of what it leaves.
			script := fmt.Sprintf(`(setsid sh -c 'exec "$0" run --server %s -- echo escaped' "$0" &) | cat`, server.urls[d])
			got := run(t, nil, append(server.through(unixDoor, append(confined, "--")...), "sh", "-c", script, execwire)...)
			if strings.Contains(got.stdout, "escaped") || !strings.Contains(got.stderr, "a confined process is not accepted without a token") {
				t.Errorf("%s by %s: %+v", backend, d, got)
			}
		}
	}
}

// A table of principals that lists the user, or loopback, changes nothing for a
// confined process; a token does.
func TestConfined_ProcessesNeedATokenOfTheTable(t *testing.T) {
	slow(t)
	dir := shortDir(t)
	token := testcert.WriteFile(t, filepath.Join(dir, "token"), []byte(strings.Repeat("token-", 8)))
	table := testcert.WriteFile(t, filepath.Join(dir, "principals.toml"), fmt.Appendf(nil, `
[[principal]]
name = "user"
unix_users = ["%d"]
allow = ["all"]

[[principal]]
name = "local"
loopback = true
allow = ["all"]

[[principal]]
name = "bearer"
token_file = %q
allow = ["all"]
`, os.Getuid(), token))
	confined := []string{"--sandbox", "read-only", "--network"}
	backends(t, func(t *testing.T, settings ...string) {
		server := serve(t, append(settings, "EXECWIRE_PRINCIPALS_FILE="+table)...)
		for _, d := range []door{tcpDoor, websocketDoor, unixDoor} {
			got := run(t, nil, server.nested(unixDoor, d, confined, "echo", "escaped")...)
			if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, "a confined process is not accepted without a token") {
				t.Errorf("by %s: %+v", d, got)
			}
			args := append(server.through(unixDoor, append(confined, "--")...), execwire)
			if got := run(t, nil, append(args, server.through(d, "--token-file", token, "--", "echo", "ran")...)...); got != (result{stdout: "ran\n"}) {
				t.Errorf("with a token by %s: %+v", d, got)
			}
		}
	})
}
