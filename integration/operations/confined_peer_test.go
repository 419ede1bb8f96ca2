package operations

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
)

// backends are the sandbox backends, each with and without control groups.
func backends(t *testing.T, f func(t *testing.T, settings ...string)) {
	for _, backend := range []string{"bubblewrap", "landlock"} {
		for _, cgroup := range []string{"auto", "off"} {
			t.Run(backend+"/cgroup_"+cgroup, func(t *testing.T) {
				f(t, "EXECWIRE_SANDBOX_BACKENDS="+backend, "EXECWIRE_CGROUP="+cgroup)
			})
		}
	}
}

// nested returns a command line that starts argv on the server from a process of the server.
func nested(c *harness.Command, outer, inner harness.Transport, flags []string, argv ...string) []string {
	args := append(append([]string{"run", "--server", c.URLs[outer]}, flags...), "--", harness.Execwire)
	return append(append(args, c.Through(inner, "--")...), argv...)
}

// A confined process with network access cannot make its own server start an unconfined one.
func TestConfined_ProcessesAreRefusedByTheirOwnServer(t *testing.T) {
	harness.Slow(t)
	confined := []string{"--sandbox", "read-only", "--network"}
	backends(t, func(t *testing.T, settings ...string) {
		server := harness.Serve(t, settings...)
		for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport, harness.UnixTransport} {
			got := harness.Run(t, nil, nested(server, harness.UnixTransport, d, confined, "echo", "escaped")...)
			if got.Code == 0 || got.Stdout != "" || !strings.Contains(got.Stderr, "a confined process is not accepted without a token") {
				t.Errorf("by %s: %+v", d, got)
			}
		}
		// Unconfined processes are still accepted.
		for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport, harness.UnixTransport} {
			if got := harness.Run(t, nil, server.Through(d, "--", "echo", "outside")...); got != (harness.Result{Stdout: "outside\n"}) {
				t.Errorf("from outside by %s: %+v", d, got)
			}
			if got := harness.Run(t, nil, nested(server, harness.UnixTransport, d, nil, "echo", "inside")...); got != (harness.Result{Stdout: "inside\n"}) {
				t.Errorf("from a process that is not confined by %s: %+v", d, got)
			}
		}
	})
}

// Background processes of a confined process are confined too.
func TestConfined_DescendantsAreRefusedByTheirOwnServer(t *testing.T) {
	harness.Slow(t)
	confined := []string{"--sandbox", "read-only", "--network"}
	for _, backend := range []string{"bubblewrap", "landlock"} {
		server := harness.Serve(t, "EXECWIRE_SANDBOX_BACKENDS="+backend, "EXECWIRE_CGROUP=off")
		for _, d := range []harness.Transport{harness.TCPTransport, harness.UnixTransport} {
			// The shell, which cat waits in, is no ancestor of what it leaves.
			script := fmt.Sprintf(`(setsid sh -c 'exec "$0" run --server %s -- echo escaped' "$0" &) | cat`, server.URLs[d])
			got := harness.Run(t, nil, append(server.Through(harness.UnixTransport, append(confined, "--")...), "sh", "-c", script, harness.Execwire)...)
			if strings.Contains(got.Stdout, "escaped") || !strings.Contains(got.Stderr, "a confined process is not accepted without a token") {
				t.Errorf("%s by %s: %+v", backend, d, got)
			}
		}
	}
}

// A table of principals that lists the user or loopback does not change that for a confined
// process; a token does.
func TestConfined_ProcessesNeedATokenOfTheTable(t *testing.T) {
	harness.Slow(t)
	dir := harness.ShortDir(t)
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
		server := harness.Serve(t, append(settings, "EXECWIRE_PRINCIPALS_FILE="+table)...)
		for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport, harness.UnixTransport} {
			got := harness.Run(t, nil, nested(server, harness.UnixTransport, d, confined, "echo", "escaped")...)
			if got.Code == 0 || got.Stdout != "" || !strings.Contains(got.Stderr, "a confined process is not accepted without a token") {
				t.Errorf("by %s: %+v", d, got)
			}
			args := append(server.Through(harness.UnixTransport, append(confined, "--")...), harness.Execwire)
			if got := harness.Run(t, nil, append(args, server.Through(d, "--token-file", token, "--", "echo", "ran")...)...); got != (harness.Result{Stdout: "ran\n"}) {
				t.Errorf("with a token by %s: %+v", d, got)
			}
		}
	})
}

// With a table that lists tokens alone, a hub, a gateway and a server behind a forward refuse a confined
// process that has none, and a hub and a gateway accept one that has. A forward sees no tokens.
func TestConfined_OtherListeners_NeedAToken(t *testing.T) {
	harness.Slow(t)
	dir := harness.ShortDir(t)
	token := testcert.WriteFile(t, filepath.Join(dir, "token"), []byte(strings.Repeat("token-", 8)))
	table := testcert.WriteFile(t, filepath.Join(dir, "principals.toml"), fmt.Appendf(nil, `
[[principal]]
name = "bearer"
token_file = %q
allow = ["all"]
on_behalf_of = ["bearer"]
connect_to_executors = ["*"]
`, token))
	start := func(arguments ...string) (url string) {
		t.Helper()
		c := harness.NewCommand(arguments...)
		c.Env = append(c.Env, "EXECWIRE_PRINCIPALS_FILE="+table)
		return c.Listen(t, 1)[0]
	}
	hub := harness.NewHub(t, []string{"EXECWIRE_HUB_PRINCIPALS_FILE=" + table}).URLs[harness.HubTransport]
	other := start("serve", "--listen", "tcp://127.0.0.1:0")
	gateway := start("gateway", "--upstream", other, "--token-file", token, "--listen", "ws://127.0.0.1:0")
	forward := start("forward", "--server", other, "--listen", "tcp://127.0.0.1:0")
	server := harness.Serve(t)
	for name, to := range map[string][]string{
		"the hub":     {"--hub", hub, "--executor", "build-1"},
		"the gateway": {"--server", gateway},
		"the forward": {"--server", forward},
	} {
		attempt := func(flags ...string) harness.Result {
			t.Helper()
			args := server.Through(harness.UnixTransport, "--sandbox", "read-only", "--network", "--", harness.Execwire, "run")
			return harness.Run(t, nil, append(append(append(args, to...), flags...), "--", "echo", "ran")...)
		}
		if got := attempt(); got.Code == 0 || got.Stdout != "" || !strings.Contains(got.Stderr, "token") {
			t.Errorf("%s without a token: %+v", name, got)
		}
		got := attempt("--token-file", token)
		if name == "the hub" && strings.Contains(got.Stderr, "executor build-1 is unknown") {
			continue
		}
		want := harness.Result{Stdout: "ran\n"}
		if name == "the forward" {
			if got.Code == 0 || !strings.Contains(got.Stderr, refusedText) {
				t.Errorf("%s with a token: %+v", name, got)
			}
			got = harness.Run(t, nil, "run", "--server", forward, "--token-file", token, "--", "echo", "ran")
		}
		if got != want {
			t.Errorf("%s with a token: %+v", name, got)
		}
	}
}
