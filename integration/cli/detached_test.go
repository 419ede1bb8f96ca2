package cli

import (
	"bytes"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// untilClosed waits until ps shows that the processes have closed. This does not count as
// seeing their exit.
func untilClosed(c *harness.Command, t testing.TB, d harness.Transport, ids ...string) {
	t.Helper()
	harness.Eventually(t, strings.Join(ids, ", ")+" have closed", func() bool {
		closed := map[string]bool{}
		for _, p := range objects[listed](t, harness.Run(t, nil, c.Remotely(d, "ps", "-a", "--json")...).Stdout) {
			closed[p.ID] = p.State == "closed"
		}
		for _, id := range ids {
			if !closed[id] {
				return false
			}
		}
		return true
	})
}

// untilRemoved waits until the record of a process is removed.
func untilRemoved(c *harness.Command, t testing.TB, d harness.Transport, id string) {
	t.Helper()
	harness.Eventually(t, "the record of "+id+" is removed", func() bool {
		return !strings.Contains(harness.Run(t, nil, c.Remotely(d, "ps", "-a", "-q")...).Stdout, id+"\n")
	})
}

// The result of a detached process is kept until a client asks for it, also after the removal
// of records whose exit was seen.
func TestDetachedRun_Result_IsKeptUntilRead(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t, "EXECWIRE_CLOSED_PROCESS_RETENTION=1ms")
	for _, id := range []string{"printed", "awaited", "taken"} {
		detach(server, t, harness.UnixTransport, id, harness.Shell("echo said; exit 3"))
	}
	untilClosed(server, t, harness.UnixTransport, "printed", "awaited", "taken")
	if seen := harness.Run(t, nil, server.Through(harness.UnixTransport, append([]string{"--id", "seen", "--"}, harness.Shell("exit 4")...)...)...); seen.Code != 4 {
		t.Fatalf("run: %+v", seen)
	}
	untilRemoved(server, t, harness.UnixTransport, "seen")

	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: "said\n"}, "logs", "printed")
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Code: 3}, "wait", "awaited")
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Code: 3, Stdout: "said\n"}, "attach", "taken")
	for _, id := range []string{"printed", "awaited", "taken"} {
		untilRemoved(server, t, harness.UnixTransport, id)
	}
}

// After the server was killed, the records of detached processes say what became of them and have the
// end of the output.
func TestDetachedRun_AfterACrash_HasARecord(t *testing.T) {
	harness.Waits(t)
	dir := harness.ShortDir(t)
	state := "EXECWIRE_STATE_DIRECTORY=" + dir
	before := harness.Serve(t, state)
	detach(before, t, harness.UnixTransport, "ended", harness.Shell("echo said; exit 3"))
	detach(before, t, harness.UnixTransport, "runs", harness.Shell("echo lost; exec sleep 1000"))
	harness.Eventually(t, "the end of one is recorded", func() bool {
		records, err := filepath.Glob(filepath.Join(dir, "processes", "*.json"))
		return err == nil && slices.ContainsFunc(records, func(name string) bool {
			record, err := os.ReadFile(name)
			return err == nil && bytes.Contains(record, []byte(`"Cause":"exited"`))
		})
	})
	before.KillServer(t)
	before.Await(t)

	const restarted = "execwire: the server was restarted: the process ended with it, and its output is lost\n"
	server := harness.Serve(t, state)
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: "said\n"}, "logs", "ended")
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Code: 3}, "wait", "ended")
	for _, flags := range [][]string{nil, {"-f"}, {"-n", "1"}} {
		server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stderr: restarted}, "logs", append(flags, "runs")...)
	}
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Code: 125, Stderr: "execwire: runs has no exit code: lost (server restarted)\n"}, "wait", "runs")
}

// A second run with the same id is another run: it fails while a record of the first exists,
// or replaces it, and never prints the output of the first.
func TestRun_ExistingID_IsRejectedOrReplaced(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	again := func(flags ...string) harness.Result {
		t.Helper()
		return harness.Run(t, nil, server.Through(harness.UnixTransport, append(append([]string{"--id", "build"}, flags...), append([]string{"--"}, harness.Shell("echo said")...)...)...)...)
	}
	said := harness.Result{Stdout: "said\n"}
	if got := again(); got != said {
		t.Fatalf("the first run: %+v", got)
	}
	refused := func(got harness.Result, progress string) {
		t.Helper()
		if got.Code != 125 || got.Stdout != "" || !strings.Contains(got.Stderr, `process "build" already exists, by another start: `+progress) ||
			!strings.Contains(got.Stderr, "execwire logs build") || !strings.Contains(got.Stderr, "--replace") {
			t.Errorf("a run under a taken id: %+v", got)
		}
	}
	refused(again(), "it has ended")
	refused(again("--detach"), "it has ended")
	if got := again("--replace"); got != said {
		t.Errorf("run --replace: %+v", got)
	}
	if got := again("--replace", "--detach"); got != (harness.Result{Stdout: "build\n"}) {
		t.Errorf("run --replace --detach: %+v", got)
	}
	untilClosed(server, t, harness.UnixTransport, "build")
	if got := again("--replace"); got != said { // an unread result is replaced, too
		t.Errorf("run --replace after a detached process: %+v", got)
	}
	detach(server, t, harness.UnixTransport, "lives", []string{"sleep", "1000"})
	got := harness.Run(t, nil, server.Through(harness.UnixTransport, "--id", "lives", "--replace", "--", "true")...)
	if got.Code != 125 || !strings.Contains(got.Stderr, "it runs") || !strings.Contains(got.Stderr, "execwire kill lives") {
		t.Errorf("run --replace of a process that runs: %+v", got)
	}
	if got := harness.Run(t, nil, server.Through(harness.UnixTransport, "--replace", "--", "true")...); got.Code != 2 || !strings.Contains(got.Stderr, "--id") {
		t.Errorf("run --replace without --id: %+v", got)
	}
}

// The output of a detached process is complete if it is more than is kept in memory.
func TestDetachedRun_MuchOutput_IsComplete(t *testing.T) {
	harness.Waits(t)
	const numbers = 300_000
	want := strings.Builder{}
	for i := range numbers {
		fmt.Fprintln(&want, i+1)
	}
	server := harness.Serve(t)
	detach(server, t, harness.UnixTransport, "numbers", []string{"seq", fmt.Sprint(numbers)})
	untilClosed(server, t, harness.UnixTransport, "numbers")
	end := fmt.Sprintf("%d\n%d\n", numbers-1, numbers)
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: end}, "logs", "-n", "2", "numbers")
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: end[len(end)-9:]}, "logs", "-c", "9", "numbers")
	if got := harness.Run(t, nil, server.Remotely(harness.UnixTransport, "logs", "numbers")...); got != (harness.Result{Stdout: want.String()}) {
		t.Errorf("logs: %d, %d bytes of %d, %q", got.Code, len(got.Stdout), want.Len(), got.Stderr)
	}
}
