package integration

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// referenceVariable has the path of the reference's command, where it is to be
// tried with it: see make reference.
const referenceVariable = "EXECWIRE_REFERENCE"

func init() {
	if codex := os.Getenv(referenceVariable); codex != "" {
		entrances = append(entrances, entrance{name: "the reference", speaks: spokenNewer,
			open: func(t testing.TB) *site { return openRealReference(t, codex) }})
	}
}

// openRealReference runs the reference.
func openRealReference(t testing.TB, codex string) *site {
	t.Helper()
	c := prepare(exec.Command(codex, "exec-server", "--listen", "ws://127.0.0.1:0"))
	c.Env = append([]string{"CODEX_HOME=" + shortDir(t)}, siteEnvironment...)
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	t.Cleanup(func() { c.stopped(t) }) // it is a script that passes signals on
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatalf("the reference did not come up: %v\n%s", err, c.errors.String())
	}
	url := strings.TrimSpace(line)
	return &site{url: url, network: "tcp", address: addressIn(url)}
}
