package operations

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

const (
	// talkative fills what is retained of a process, and stays.
	talkative = "head -c 3000000 /dev/zero; exec sleep 1000"
	// greedy takes memory until there is none left.
	greedy = "b = []\nwhile True: b.append(bytearray(1 << 20))"
)

// With little memory for a server and all of its processes, the output retained for detached
// processes is bounded by it, and a process that uses the rest is killed instead of the server.
func TestServer_WithLittleMemory_RefusesStartsAndOutlivesTheGreedy(t *testing.T) {
	harness.Slow(t)
	for mib, most := range map[int]int{64: 11, 256: 44, 512: 89} { // as docs/reliability.md has it
		t.Run(fmt.Sprint(mib, "MiB"), func(t *testing.T) {
			group := harness.NewTestGroup(t, "memory", map[string]string{"memory.limit_in_bytes": strconv.Itoa(mib << 20), "memory.max": strconv.Itoa(mib << 20)})
			server := harness.Prepare(exec.Command("/bin/sh", "-c", "set -e; echo $$ > "+group+`/cgroup.procs; exec "$0" "$@"`, harness.Execwire, "serve", "--listen", "grpc://127.0.0.1:0"))
			server.Listen(t, 1)
			conn := harness.Dial(t, "tcp", server.Address(harness.TCPTransport))
			processes := execwirev1.NewProcessServiceClient(conn)
			start := func(id string, argv ...string) error {
				_, err := processes.StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{ProcessId: id,
					Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
						Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: harness.Environment()}}}})
				return err
			}
			var refusal error
			started := 0
			for ; started <= mib && refusal == nil; started++ {
				refusal = start(fmt.Sprint("talkative-", started), harness.Shell(talkative)...)
			}
			if status.Code(refusal) != codes.ResourceExhausted || !strings.Contains(refusal.Error(), "retained_output_bytes_total") {
				t.Fatalf("after %d starts: %v, want the limit of retained output", started, refusal)
			}
			if started--; started != most {
				t.Errorf("refused after %d starts, want %d: seven eighths of a quarter of the memory are for one principal's output", started, most)
			}
			if kills := oomKills(t, group); kills != 0 {
				t.Errorf("%d processes were killed for want of memory", kills)
			}
			force := &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
			if _, err := processes.TerminateProcess(harness.Context(t), &execwirev1.TerminateProcessRequest{ProcessId: "talkative-0", Termination: force}); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "there is a place for another process", func() bool { return start("greedy", "/usr/bin/python3", "-c", greedy) == nil })
			harness.Eventually(t, "the greedy one is killed", func() bool { return oomKills(t, group) > 0 && !taken(t, processes, "greedy") })
			if _, err := execwirev1.NewFileSystemServiceClient(conn).ReadFile(harness.Context(t), &execwirev1.ReadFileRequest{Path: "/proc/self/status"}); err != nil {
				t.Errorf("afterwards the server does not answer: %v", err)
			}
		})
	}
}

// taken reports whether a process runs.
func taken(t *testing.T, processes execwirev1.ProcessServiceClient, id string) bool {
	t.Helper()
	answer, err := processes.GetProcess(harness.Context(t), &execwirev1.GetProcessRequest{ProcessId: id})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_RUNNING
}

// oomKills returns how many processes of a control group were killed for lack of memory.
func oomKills(t *testing.T, group string) (kills int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(group, "memory.oom_control")) // cgroup v1
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(group, "memory.events"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if n, err := fmt.Sscanf(string(line), "oom_kill %d", &kills); n == 1 && err == nil {
			return kills
		}
	}
	t.Fatalf("no oom_kill in %q", text)
	return 0
}
