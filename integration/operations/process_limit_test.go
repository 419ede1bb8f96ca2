package operations

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// Users of the tests below, and of no other process: the system counts what a user has.
const (
	bombedUser = 61120 + iota
	pidsUser
)

// bomb forks as often as the system permits, in every process, and continues when one has
// ended.
const bomb = `import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)`

// A server at the process limit of its user survives, responds, and kills the process that has
// reached it.
func TestServer_AtTheLimitOfProcesses_LivesAndEndsTheBomb(t *testing.T) {
	harness.Slow(t)
	for _, tc := range []struct {
		name   string
		user   int
		full   int // tasks of the user when the bomb can get no more, or nearly
		calls  int // at once; the server has no more threads than those in advance and in reserve
		launch func(t *testing.T) *harness.Command
	}{
		{"rlimit", bombedUser, 85, 32, func(t *testing.T) *harness.Command {
			return harness.ServeAs(t, bombedUser, 400, 120)
		}},
		{"pids cgroup", pidsUser, 145, 16, func(t *testing.T) *harness.Command {
			return harness.ServeAs(t, pidsUser, 150, 400)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := tc.launch(t)
			conn := harness.Dial(t, "tcp", server.Address(harness.TCPTransport))
			processes := execwirev1.NewProcessServiceClient(conn)
			start := func(id string, argv ...string) error {
				_, err := processes.StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{ProcessId: id,
					Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
						Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: harness.Environment()}}}})
				return err
			}
			if err := start("bomb", "/usr/bin/python3", "-c", bomb); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the bomb has what it can get", func() bool { return tasksOf(tc.user) >= tc.full })
			files := execwirev1.NewFileSystemServiceClient(conn)
			expectServed(t, tc.calls, start, files)
			answer, err := processes.TerminateProcess(harness.Context(t), &execwirev1.TerminateProcessRequest{ProcessId: "bomb",
				Termination: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}})
			if err != nil {
				t.Fatalf("the bomb cannot be ended: %v", err)
			}
			t.Logf("ended by %v, verified: %v", answer.GetMethod(), answer.GetVerifiedEmpty())
			if err := start("after", "/bin/true"); err != nil {
				t.Errorf("a start after the bomb was ended: %v", err)
			}
			if server.ProcessState != nil {
				t.Error("the server has ended")
			}
		})
	}
}

// expectServed makes concurrent calls that need threads. Starts may fail.
func expectServed(t *testing.T, atOnce int, start func(id string, argv ...string) error, files execwirev1.FileSystemServiceClient) {
	t.Helper()
	var callers sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		callers.Go(func() {
			for i := range next {
				if err := start(fmt.Sprint("many-", i), "/bin/true"); err != nil && status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a start at the limit = %v, want RESOURCE_EXHAUSTED", err)
				}
				if _, err := files.ReadFile(harness.Context(t), &execwirev1.ReadFileRequest{Path: "/proc/self/smaps"}); err != nil {
					t.Errorf("a file cannot be read: %v", err)
				}
			}
		})
	}
	for i := range 256 {
		next <- i
	}
	close(next)
	callers.Wait()
}

// tasksOf counts the processes and threads of a user.
func tasksOf(user int) (tasks int) {
	for _, k := range harness.ListProcesses() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.Pid))
		var threads int
		owned := false
		for line := range strings.Lines(string(text)) {
			if n, err := fmt.Sscanf(line, "Threads: %d", &threads); n == 1 && err == nil {
				continue
			}
			owned = owned || strings.HasPrefix(line, fmt.Sprintf("Uid:\t%d\t", user))
		}
		if owned {
			tasks += threads
		}
	}
	return tasks
}
