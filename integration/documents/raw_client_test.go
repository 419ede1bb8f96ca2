package documents

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// The client that docs/clients.md names as an example of one without an SDK passes on more input
// than a window, its output in order, and the exit code.
func TestRawClient_RunsACommand(t *testing.T) {
	server := harness.Serve(t)
	input := bytes.Repeat([]byte("0123456789abcde\n"), 3<<20/16)
	for _, tc := range []struct {
		script string
		code   int
		stderr string
	}{
		{"cat; echo end >&2; exit 3", 3, "end\n"},
		{"cat; kill -KILL $$", 128 + 9, ""},
	} {
		c := exec.Command(harness.Python, "../../examples/raw/run.py", server.Address(harness.TCPTransport), "sh", "-c", tc.script)
		c.Env = append(c.Environ(), "PYTHONPATH=../../gen/python")
		var stdout, stderr bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(input), &stdout, &stderr
		_ = c.Run() // the exit code says more
		if code := c.ProcessState.ExitCode(); code != tc.code || !bytes.Equal(stdout.Bytes(), input) || stderr.String() != tc.stderr {
			t.Errorf("%q: exit code %d, %d bytes, stderr %q; want %d, %d bytes, %q", tc.script, code, stdout.Len(), stderr.String(), tc.code, len(input), tc.stderr)
		}
	}
}
