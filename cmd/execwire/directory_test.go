package main

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
)

// A process without a directory starts in the home directory of the server's user, whatever
// the directory of the client is, by every API; or in / if that does not exist. Without a
// server it starts in the current directory.
func TestRun_DefaultDirectory(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, server := range []struct{ home, want string }{{home, home}, {home + "/missing", "/"}, {"", "/"}} {
		s := startServerWith(t, []string{"HOME=" + server.home}, "unix://"+t.TempDir()+"/s", "ws://127.0.0.1:0")
		for _, url := range s.urls {
			if got := runCommand(t, command(t, "run", "--server", url, "--", "pwd")); got.out != server.want+"\n" {
				t.Errorf("HOME=%s, %s: %+v", server.home, url, got)
			}
			c, err := client.Dial(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			result, err := c.Output(t.Context(), client.Command{Argv: []string{"pwd"}})
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err != nil || string(result) != server.want+"\n" {
				t.Errorf("HOME=%s, %s, from Go: %q, %v", server.home, url, result, err)
			}
		}
		if server.home == home {
			got := runCommand(t, command(t, "run", "--server", s.urls[0], "--sandbox", "read-only", "--", "pwd"))
			if got.out != home+"\n" && !strings.Contains(got.errOut, "execwire doctor") {
				t.Errorf("in a sandbox: %+v", got)
			}
		}
	}
	local := command(t, "run", "--", "pwd")
	if got := runCommand(t, local); got.out != local.Dir+"\n" {
		t.Errorf("without a server: %+v, not in %s", got, local.Dir)
	}
	for flag, want := range map[string]string{
		"--cwd=src":                 `--cwd is "src": give an absolute path of the server, for example /srv/src`,
		"--sandbox=workspace-write": "name it with --cwd",
	} {
		if got := runCommand(t, command(t, "run", "--server", "unix:///x", flag, "--", "true")); got.code != codeUsage || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}
