package integration

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
)

const (
	// talkative fills what is retained of a process, and stays.
	talkative = "head -c 3000000 /dev/zero; exec sleep 1000"
	// greedy takes memory until there is none left.
	greedy = "b = []\nwhile True: b.append(bytearray(1 << 20))"
)

// With little memory for a server and all of its processes, output of detached processes
// is bounded by it, and a process that takes the rest is killed instead of the server.
func TestServer_WithLittleMemory_RefusesStartsAndOutlivesTheGreedy(t *testing.T) {
	slow(t)
	for mib, most := range map[int]int{64: 11, 256: 44, 512: 89} { // as docs/reliability.md has it
		t.Run(fmt.Sprint(mib, "MiB"), func(t *testing.T) {
			group := newTestGroup(t, "memory", map[string]string{"memory.limit_in_bytes": strconv.Itoa(mib << 20), "memory.max": strconv.Itoa(mib << 20)})
			server := prepare(exec.Command("/bin/sh", "-c", "set -e; echo $$ > "+group+`/cgroup.procs; exec "$0" "$@"`, execwire, "serve", "--listen", "grpc://127.0.0.1:0"))
			server.listen(t, 1)
			conn := dial(t, "tcp", server.address(tcpDoor))
			processes := execwirev1.NewProcessServiceClient(conn)
			start := func(id string, argv ...string) error {
				_, err := processes.StartProcess(testContext(t), &execwirev1.StartProcessRequest{ProcessId: id,
					Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
						Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: environment()}}}})
				return err
			}
			var refusal error
			started := 0
			for ; started <= mib && refusal == nil; started++ {
				refusal = start(fmt.Sprint("talkative-", started), shell(talkative)...)
			}
			if status.Code(refusal) != codes.ResourceExhausted || !strings.Contains(refusal.Error(), "kept") {
				t.Fatalf("after %d starts: %v, want to be refused for the output that may have to be kept", started, refusal)
			}
			if started--; started != most {
				t.Errorf("refused after %d starts, want %d: seven eighths of a quarter of the memory are for one principal's output", started, most)
			}
			if kills := oomKills(t, group); kills != 0 {
				t.Errorf("%d processes were killed for want of memory", kills)
			}
			force := &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
			if _, err := processes.TerminateProcess(testContext(t), &execwirev1.TerminateProcessRequest{ProcessId: "talkative-0", Termination: force}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "there is a place for another process", func() bool { return start("greedy", "/usr/bin/python3", "-c", greedy) == nil })
			eventually(t, "the greedy one is killed", func() bool { return oomKills(t, group) > 0 && !taken(t, processes, "greedy") })
			if _, err := execwirev1.NewFileSystemServiceClient(conn).ReadFile(testContext(t), &execwirev1.ReadFileRequest{Path: "/proc/self/status"}); err != nil {
				t.Errorf("afterwards the server does not answer: %v", err)
			}
		})
	}
}

// taken reports whether a process runs.
func taken(t *testing.T, processes execwirev1.ProcessServiceClient, id string) bool {
	t.Helper()
	answer, err := processes.GetProcess(testContext(t), &execwirev1.GetProcessRequest{ProcessId: id})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_RUNNING
}

// oomKills counts who was killed in a control group because there was no memory.
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

// newTestGroup makes a control group for a controller, below that of the test, and sets
// what it has of the settings. It returns its directory.
func newTestGroup(t *testing.T, controller string, settings map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp(ownGroup(t, controller), "execwire-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the control group is empty", func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	})
	set := 0
	for name, value := range settings {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue // of the other version of control groups
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		set++
	}
	if set == 0 {
		t.Fatalf("%s has none of %v: the controller %s is not enabled there", dir, settings, controller)
	}
	return dir
}

// ownGroup is the directory of the control group of this test that has a controller: in
// cgroup v1 if the controller is there, else the root of cgroup v2.
func ownGroup(t *testing.T, controller string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] == controller {
			return filepath.Join("/sys/fs/cgroup", controller, fields[2])
		}
	}
	return "/sys/fs/cgroup"
}
