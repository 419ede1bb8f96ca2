package documents

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// TestPrograms_Cuts_LoseNothing runs the agent, the upload and the terminal of examples while each
// connection is cut 0.7 s after it was accepted. sdk/python/tests/programs.py holds the programs of
// all SDKs against the same.
func TestPrograms_Cuts_LoseNothing(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	directory := filepath.Dir(harness.Execwire)
	for _, name := range []string{"agent", "upload", "terminal"} {
		if err := harness.Build(filepath.Join(directory, name), "./examples/"+name); err != nil {
			t.Fatal(err)
		}
	}
	server := harness.Serve(t)
	check := harness.Prepare(exec.Command(harness.Python, "-m", "tests.programs",
		"tcp://"+server.Address(harness.TCPTransport), filepath.Join(directory, "{}")))
	check.Dir, check.Env = "../../sdk/python", append(check.Env, "PYTHONDONTWRITEBYTECODE=1")
	if got := check.Complete(t, nil); got != (harness.Result{}) {
		t.Errorf("%+v", got)
	}
}
