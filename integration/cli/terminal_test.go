package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// atTerminal runs a command line of the server at a terminal, and returns its output.
func atTerminal(c *harness.Command, t testing.TB, d harness.Transport, name string, args ...string) harness.Result {
	t.Helper()
	argv := append([]string{"--", harness.Execwire}, c.Remotely(d, name, args...)...)
	return harness.Run(t, nil, append(c.Through(d, "-t", "--env", testproc.NoRaceExitDelay), argv...)...)
}

// Names are quoted at a terminal, and in columns.
func TestLs_Terminal_QuotesNames(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.FileTree(t, map[string]string{"a b": "", "c": "", "evil\x1b[2J": "", "\xff": ""})
	for _, d := range harness.NetworkTransports {
		got := atTerminal(server, t, d, "ls", dir)
		if want := `a b  c  "evil\x1b[2J"  "\xff"` + "\r\n"; got.Code != 0 || got.Stdout != want {
			t.Errorf("ls through %s: %+v, want %q", d, got, want)
		}
		got = atTerminal(server, t, d, "stat", filepath.Join(dir, "evil\x1b[2J"))
		if got.Code != 0 || !strings.Contains(got.Stdout, `/evil\x1b[2J"`) || strings.Contains(got.Stdout, "\x1b") {
			t.Errorf("stat through %s: %+v", d, got)
		}
	}
}
