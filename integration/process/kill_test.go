package process

import (
	"os"
	"path/filepath"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// hostile starts a process that tries to survive with all kinds of descendants, and returns a
// function that lists those alive.
func hostile(t *testing.T, c *harness.Command, leave bool, args ...string) (id string, alive func() int) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	response, err := harness.Remote(t, c, harness.UnixTransport).StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{
		LeaveDescendants: leave,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: testproc.Argv("hostile", append([]string{"-report", report}, args...)...), WorkingDirectory: "/", Env: harness.Environment()}}}})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetProcess().GetProcessId(), survivors(t, report)
}

// survivors returns the living processes of a hostile process's report, and kills them after
// the test.
func survivors(t *testing.T, report string) func() int {
	living := func() (found []testproc.Hostile) {
		all, err := testproc.ReadHostile(report)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, h := range all {
			if h.Alive() {
				found = append(found, h)
			}
		}
		return found
	}
	t.Cleanup(func() {
		for _, h := range living() { // which has failed the test
			h.Kill()
		}
	})
	return func() int { return len(living()) }
}

func terminateBy(t *testing.T, c *harness.Command, id string) *execwirev1.TerminateProcessResponse {
	t.Helper()
	response, err := harness.Remote(t, c, harness.UnixTransport).TerminateProcess(harness.Context(t), &execwirev1.TerminateProcessRequest{ProcessId: id, Termination: &execwirev1.Termination{
		Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}})
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// A server reports how it kills, kills the whole tree, and verifies it.
func TestKill_LeavesNoProcessAndReportsIt(t *testing.T) {
	harness.WithAndWithoutCgroups(t, func(t *testing.T, setting string) {
		server := harness.Serve(t, setting)
		environ := execwirev1.NewEnvironmentServiceClient(harness.Dial(t, "unix", server.Address(harness.UnixTransport)))
		described, err := environ.GetEnvironment(harness.Context(t), &execwirev1.GetEnvironmentRequest{})
		if err != nil {
			t.Fatal(err)
		}
		id, alive := hostile(t, server, false, "child", "stopped", "group", "session", "daemon")
		harness.Eventually(t, "all are in place", func() bool { return alive() == 6 })
		response := terminateBy(t, server, id)
		if left := alive(); left != 0 || !response.GetVerifiedEmpty() || !response.GetWasRunning() {
			t.Errorf("%d processes are left, and the server reports %v", left, response)
		}
		if response.GetMethod() != described.GetKillMethod() || response.GetMethod() < execwirev1.KillMethod_KILL_METHOD_DESCENDANTS {
			t.Errorf("it used %v, and reports the method %v", response.GetMethod(), described.GetKillMethod())
		}
	})
}

// A daemon is killed with the process that started it, unless descendants are to be left. Then
// the next termination kills it.
func TestKill_Daemon_SurvivesOnlyOnRequest(t *testing.T) {
	harness.WithAndWithoutCgroups(t, func(t *testing.T, setting string) {
		server := harness.Serve(t, setting)
		processes := harness.Remote(t, server, harness.UnixTransport)
		hasClosed := func(id string) {
			harness.Eventually(t, "the process has closed", func() bool {
				response, err := processes.GetProcess(harness.Context(t), &execwirev1.GetProcessRequest{ProcessId: id})
				return err == nil && response.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
			})
		}
		id, doomed := hostile(t, server, false, "-leave", "session", "daemon")
		hasClosed(id)
		harness.Eventually(t, "those who were not to be left are dead", func() bool { return doomed() == 0 })
		id, left := hostile(t, server, true, "-leave", "session", "daemon")
		hasClosed(id)
		if n := left(); n != 2 {
			t.Fatalf("of two descendants that were to be left %d are", n)
		}
		if response := terminateBy(t, server, id); left() != 0 || response.GetWasRunning() || !response.GetVerifiedEmpty() {
			t.Errorf("%d processes are left, and the server reports %v", left(), response)
		}
	})
}

func TestKill_CommandLine_LeavesADaemonOnRequest(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for flag, want := range map[string]int{"--leave-descendants": 2, "--leave-descendants=false": 0} {
			report := filepath.Join(t.TempDir(), "report")
			argv := testproc.Argv("hostile", "-report", report, "-leave", "session", "daemon")
			if got := harness.Run(t, nil, append(server.Through(d, flag, "--"), argv...)...); got.Code != 3 {
				t.Fatalf("run %s: %+v", flag, got)
			}
			if left := survivors(t, report)(); left != want {
				t.Errorf("with %s through %s %d are left, want %d", flag, d, left, want)
			}
		}
	}
}
