package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// The same request repeated is the same process; another one is refused.
func TestARepeatedStartIsTheSameProcess(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		request := s.request(program("echo"), stdin).GetProcess()
		first, err := s.processes.StartProcess(s.ctx, request)
		if err != nil {
			s.Fatal(err)
		}
		again, err := s.processes.StartProcess(s.ctx, request)
		if err != nil || again.GetProcess().GetPid() != first.GetProcess().GetPid() {
			s.Errorf("the same start again gives %v, %v; want pid %d", again.GetProcess(), err, first.GetProcess().GetPid())
		}
		request.GetCommand().GetDirect().Argv = shell("exit 1")
		_, err = s.processes.StartProcess(s.ctx, request)
		s.expectReason(err, "PROCESS_ALREADY_EXISTS")
		s.terminate(request.GetProcessId(), forced)
	})
}

// So it is for RunProcess, which then goes on from the first event.
func TestARepeatedRunIsTheSameProcess(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		p := s.run(program("echo"), stdin, named("same"))
		p.write("hello")
		p.expectOutput(stdoutOf, "hello")
		p.disconnect()
		again := s.run(program("echo"), stdin, named("same"))
		if !again.started.GetResumed() || again.started.GetProcess().GetPid() != p.started.GetProcess().GetPid() {
			s.Errorf("the same run again says %v", again.started)
		}
		again.sent = again.started.GetStdinOffset()
		again.endInput()
		again.expectOutput(stdoutOf, "hello")
		again.expectEnd(s, 0, noSignal, byItself)
	})
}

// Each door knows its callers by another name, and none of them sees what
// belongs to another.
func TestPrincipalsDoNotSeeEachOther(t *testing.T) {
	server := newServer(t, nil)
	stories := map[door]*story{}
	for _, d := range doors {
		stories[d] = newStory(t, server, d)
		stories[d].start(program("sleep"), named("of "+string(d)))
		stories[d].start(program("sleep"), named("everywhere"))
	}
	pids := map[int32]door{}
	for _, mine := range doors {
		s := stories[mine]
		list, err := s.processes.ListProcesses(s.ctx, &execwirev1.ListProcessesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(list.GetProcesses()); n != 2 {
			t.Errorf("at the door %s one sees %d processes, want one's own two", mine, n)
		}
		if pid := s.get("everywhere").GetPid(); pids[pid] != "" {
			t.Errorf("%s and %s share a process", mine, pids[pid])
		} else {
			pids[pid] = mine
		}
		for _, others := range doors {
			if others != mine {
				expectUnseen(s, "of "+string(others))
			}
		}
	}
}

// expectUnseen fails unless the process does not exist for the caller.
func expectUnseen(s *story, id string) {
	s.Helper()
	_, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	s.expectReason(err, "PROCESS_NOT_FOUND")
	s.expectReason(s.watch(id, 0).failure(), "PROCESS_NOT_FOUND")
	_, err = s.processes.TerminateProcess(s.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id})
	s.expectReason(err, "PROCESS_NOT_FOUND")
	_, err = s.processes.WriteStdin(s.ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: []byte("x")})
	s.expectReason(err, "PROCESS_NOT_FOUND")
}

// At a unix socket, users are told apart by the kernel.
func TestUsersDoNotSeeEachOther(t *testing.T) {
	socket := filepath.Join(publicDir(t), "s")
	server := newServer(t, func(cfg *config.Config) { cfg.Listen = []string{"unix://" + socket} })
	s := newStory(t, server, unixDoor)
	s.start(program("sleep"), named("mine"))
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return // only root can become somebody else; the doors above are somebody else too
	}
	said := asNobody(t, "list-processes", "unix://"+socket, "mine", "theirs")
	if want := (seen{Before: nil, Reason: "PROCESS_NOT_FOUND", After: []string{"theirs"}}); fmt.Sprint(said) != fmt.Sprint(want) {
		t.Errorf("nobody sees %+v, want %+v", said, want)
	}
	list, err := s.processes.ListProcesses(s.ctx, &execwirev1.ListProcessesRequest{})
	if err != nil || len(list.GetProcesses()) != 1 || list.GetProcesses()[0].GetProcessId() != "mine" {
		t.Errorf("root sees %v, %v; want its own process alone", list.GetProcesses(), err)
	}
}

// seen is what the program list-processes prints.
type seen struct {
	Before []string // the processes it saw at first
	Reason string   // why it could not see the one it was told of
	After  []string // the processes it saw when it had started one
}

func init() { testproc.Register("list-processes", listProcesses) }

// list-processes URL ID NEW says what its user sees of a server: the processes,
// the one called ID, and the processes again after it has started NEW.
func listProcesses(args []string) int {
	if err := tryListProcesses(args[0], args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func tryListProcesses(url, id, started string) error {
	ctx, cancel := withPatience()
	defer cancel(nil)
	c, err := client.Dial(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var result seen
	list := func() (ids []string) {
		response, listErr := c.Processes().ListProcesses(ctx, &execwirev1.ListProcessesRequest{}, grpc.WaitForReady(true))
		if listErr != nil {
			err = listErr
		}
		for _, p := range response.GetProcesses() {
			ids = append(ids, p.GetProcessId())
		}
		return ids
	}
	result.Before = list()
	_, getErr := c.Processes().GetProcess(ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	result.Reason = reasonOf(getErr)
	_, startErr := c.Processes().StartProcess(ctx, &execwirev1.StartProcessRequest{ProcessId: started,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: shell("exit 0"), WorkingDirectory: "/"}}}})
	if startErr != nil {
		return startErr
	}
	result.After = list()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

const nobody = 65534

// asNobody runs a program of this binary as another user, from a copy that this
// user can reach.
func asNobody(t *testing.T, name string, args ...string) (said seen) {
	t.Helper()
	binary := filepath.Join(publicDir(t), "helper")
	copyFile(t, "/proc/self/exe", binary)
	argv := program(name, args...)
	cmd := exec.CommandContext(testContext(t), binary, argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if err != nil {
		t.Fatalf("the helper failed: %v: %s%s", err, out, &complaint)
	}
	return said
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	syscall.ForkLock.RLock() // a child forked meanwhile would have the file open for writing, and it could not be executed
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// publicDir is a directory of the test that every user can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "integration-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
