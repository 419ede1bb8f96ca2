package documents

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// The commands of docs/remote.md have the documented output.
func TestRemoteDocument_Commands(t *testing.T) {
	f := harness.NewFleet(t)
	runCommands(t, "docs/remote.md", 3, []string{"bin/execwire", harness.Execwire, "http://127.0.0.1:7430", f.URL(), "arch=amd64", "arch=test"})
}

// Processes do not inherit the credentials for the hub.
func TestExecutorSecrets_AreNotInherited(t *testing.T) {
	f := harness.NewFleet(t, "CODEX_EXEC_SERVER_REMOTE_BEARER_TOKEN=secret-for-the-hub", "CODEX_ACCESS_TOKEN=secret-too", "PLAIN=seen")
	got := harness.Run(t, nil, append(f.Through("--env-inherit", "all", "--"), "env")...)
	if got.Code != 0 || !strings.Contains(got.Stdout, "PLAIN=seen") || strings.Contains(got.Stdout, "secret-") {
		t.Errorf("a process sees %+v", got)
	}
	if said := f.Executor.Errors.String(); strings.Contains(said, "secret-") {
		t.Errorf("the log is %s", said)
	}
}

// TestRemoteDocument_FiveMinutes runs the quick start for a command on another machine.
func TestRemoteDocument_FiveMinutes(t *testing.T) {
	f := harness.NewFleet(t)
	got := harness.Run(t, nil, "executors", "--hub", f.URL())
	if fields := strings.Split(got.Stdout, "\t"); got.Code != 0 || len(fields) != 11 || fields[5] != "LABELS\n"+harness.ExecutorID || fields[6] != "connected" || fields[10] != "arch=test\n" {
		t.Errorf("executors: %+v", got)
	}
	if got := harness.Run(t, strings.NewReader("hello"), append(f.Through("-i", "--"), harness.Shell("tr a-z A-Z; echo apart >&2; exit 6")...)...); got != (harness.Result{Code: 6, Stdout: "HELLO", Stderr: "apart\n"}) {
		t.Errorf("run: %+v", got)
	}
	if got := harness.Run(t, nil, "run", "--hub", f.URL(), "--executor", "nobody", "--", "true"); got.Code != 125 || !strings.Contains(got.Stderr, "execwire executors") {
		t.Errorf("an executor that is not there: %+v", got)
	}
	if got := harness.Run(t, nil, "run", "--server", f.Server(t), "--", "true"); got != (harness.Result{}) {
		t.Errorf("run --server: %+v", got)
	}
	if code := f.Executor.Stopped(t); code != 0 {
		t.Errorf("the executor ended with %d", code)
	}
	if code := f.Hub.Stopped(t); code != 0 {
		t.Errorf("the hub ended with %d", code)
	}
}
