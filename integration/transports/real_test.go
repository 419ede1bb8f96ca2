package transports

import (
	"bufio"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func init() {
	if codex := os.Getenv(harness.ReferenceVariable); codex != "" {
		endpoints = append(endpoints, endpoint{name: "the reference", protocol: protocolReferenceNew,
			open: func(t testing.TB) *site { return openRealReference(t, codex) }})
	}
}

// openRealReference runs the reference.
func openRealReference(t testing.TB, codex string) *site {
	t.Helper()
	c := harness.Prepare(exec.Command(codex, "exec-server", "--listen", "ws://127.0.0.1:0"))
	// It makes no helpers for its sandboxes in a directory for temporary files.
	home, err := os.MkdirTemp(filepath.Dir(codex), "home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	c.Env = append([]string{"CODEX_HOME=" + home}, siteEnvironment...)
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	t.Cleanup(func() { c.Stopped(t) }) // it is a script that passes signals on
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatalf("the reference did not come up: %v\n%s", err, c.Errors.String())
	}
	url := strings.TrimSpace(line)
	return &site{url: url, network: "tcp", address: harness.AddressOf(url),
		adds: []string{"CODEX_HOME=", "PATH=" + home, "PATH=" + filepath.Dir(filepath.Dir(codex))}}
}

// without returns variables without those that the server adds.
func (s *site) without(variables []string) []string {
	var rest []string
	for _, variable := range variables {
		for _, added := range s.adds {
			name, _, _ := strings.Cut(added, "=")
			switch {
			case !strings.HasPrefix(variable, added):
			case name+"=" == added:
				variable = ""
			default:
				_, own, _ := strings.Cut(variable, ":")
				variable = name + "=" + own
			}
		}
		if variable != "" {
			rest = append(rest, variable)
		}
	}
	return rest
}
