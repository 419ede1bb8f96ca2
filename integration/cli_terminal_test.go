package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/testproc"
)

// atTerminal runs a command line of the server at a terminal, whose output it
// returns.
func (c *command) atTerminal(t testing.TB, d door, name string, args ...string) result {
	t.Helper()
	argv := append([]string{"--", execwire}, c.remotely(d, name, args...)...)
	return run(t, nil, append(c.through(d, "-t", "--env", testproc.PromptExit), argv...)...)
}

// Names are quoted at a terminal, and in columns.
func TestNamesAreQuotedAtATerminal(t *testing.T) {
	server := serve(t)
	dir := fileTree(t, map[string]string{"a b": "", "c": "", "evil\x1b[2J": "", "\xff": ""})
	for _, d := range wires {
		got := server.atTerminal(t, d, "ls", dir)
		if want := `a b  c  "evil\x1b[2J"  "\xff"` + "\r\n"; got.code != 0 || got.stdout != want {
			t.Errorf("ls through %s: %+v, want %q", d, got, want)
		}
		got = server.atTerminal(t, d, "stat", filepath.Join(dir, "evil\x1b[2J"))
		if got.code != 0 || !strings.Contains(got.stdout, `/evil\x1b[2J"`) || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("stat through %s: %+v", d, got)
		}
	}
}
