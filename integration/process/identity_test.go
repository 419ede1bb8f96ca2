package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// A repeated start returns the same process. A start with another request fails.
func TestStart_Repeated_IsTheSameProcess(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		request := s.Request(harness.Program("echo"), harness.WithStdin).GetProcess()
		first, err := s.Processes.StartProcess(s.Ctx, request)
		if err != nil {
			s.Fatal(err)
		}
		again, err := s.Processes.StartProcess(s.Ctx, request)
		if err != nil || again.GetProcess().GetPid() != first.GetProcess().GetPid() {
			s.Errorf("the same start again gives %v, %v; want pid %d", again.GetProcess(), err, first.GetProcess().GetPid())
		}
		request.GetCommand().GetDirect().Argv = harness.Shell("exit 1")
		_, err = s.Processes.StartProcess(s.Ctx, request)
		s.ExpectReason(err, "PROCESS_ALREADY_EXISTS")
		s.Terminate(request.GetProcessId(), harness.Forced)
	})
}

// The same holds for RunProcess, which then begins with the first event.
func TestRun_Repeated_IsTheSameProcess(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Program("echo"), harness.WithStdin, harness.WithID("same"))
		p.Write("hello")
		p.ExpectOutput(harness.StdoutOf, "hello")
		disconnect(p)
		again := s.Run(harness.Program("echo"), harness.WithStdin, harness.WithID("same"))
		if !again.Started.GetResumed() || again.Started.GetProcess().GetPid() != p.Started.GetProcess().GetPid() {
			s.Errorf("the same run again returns %v", again.Started)
		}
		again.Sent = again.Started.GetStdinOffset()
		again.EndInput()
		again.ExpectOutput(harness.StdoutOf, "hello")
		again.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// Each transport has its own principal, and no principal sees what belongs to another.
func TestPrincipals_AreIsolated(t *testing.T) {
	server := harness.NewServer(t, nil)
	scenarios := map[harness.Transport]*harness.Scenario{}
	for _, d := range harness.Transports {
		scenarios[d] = harness.NewScenario(t, server, d)
		scenarios[d].Start(harness.Program("sleep"), harness.WithID("of "+string(d)))
		scenarios[d].Start(harness.Program("sleep"), harness.WithID("everywhere"))
	}
	pids := map[int32]harness.Transport{}
	for _, mine := range harness.Transports {
		s := scenarios[mine]
		list, err := s.Processes.ListProcesses(s.Ctx, &execwirev1.ListProcessesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(list.GetProcesses()); n != 2 {
			t.Errorf("over %s a client sees %d processes, want its own two", mine, n)
		}
		if pid := s.Get("everywhere").GetPid(); pids[pid] != "" {
			t.Errorf("%s and %s share a process", mine, pids[pid])
		} else {
			pids[pid] = mine
		}
		for _, others := range harness.Transports {
			if others != mine {
				harness.ExpectUnseen(s, "of "+string(others))
			}
		}
	}
}

// On a unix socket, the kernel identifies users.
func TestUsers_AreIsolated(t *testing.T) {
	socket := filepath.Join(harness.PublicDir(t), "s")
	server := harness.NewServer(t, func(cfg *config.Config) { cfg.Listen = []string{"unix://" + socket} })
	s := harness.NewScenario(t, server, harness.UnixTransport)
	s.Start(harness.Program("sleep"), harness.WithID("mine"))
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return // only root can change the user; the principals of the transports differ too
	}
	got := runAsNobody(t, "list-processes", "unix://"+socket, "mine", "theirs")
	if want := (seen{Before: nil, Reason: "PROCESS_NOT_FOUND", After: []string{"theirs"}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the other user sees %+v, want %+v", got, want)
	}
	list, err := s.Processes.ListProcesses(s.Ctx, &execwirev1.ListProcessesRequest{})
	if err != nil || len(list.GetProcesses()) != 1 || list.GetProcesses()[0].GetProcessId() != "mine" {
		t.Errorf("root sees %v, %v; want its own process alone", list.GetProcesses(), err)
	}
}

// seen is the output of the program list-processes.
type seen struct {
	Before []string // the processes it saw at first
	Reason string   // the error for the process ID
	After  []string // the processes it saw when it had started one
}

func init() { testproc.Register("list-processes", listProcesses) }

// list-processes URL ID NEW prints what its user sees of a server: the processes, the process
// ID, and the processes again after starting NEW.
func listProcesses(args []string) int {
	if err := tryListProcesses(args[0], args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func tryListProcesses(url, id, started string) error {
	ctx, cancel := harness.ContextWithoutTest()
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
	result.Reason = harness.ReasonOf(getErr)
	_, startErr := c.Processes().StartProcess(ctx, &execwirev1.StartProcessRequest{ProcessId: started,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: harness.Shell("exit 0"), WorkingDirectory: "/"}}}})
	if startErr != nil {
		return startErr
	}
	result.After = list()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// runAsNobody runs a program of this binary as another user, from a copy that this
// user can reach.
func runAsNobody(t *testing.T, name string, args ...string) (got seen) {
	t.Helper()
	binary := filepath.Join(harness.PublicDir(t), "helper")
	harness.CopyFile(t, "/proc/self/exe", binary)
	argv := harness.Program(name, args...)
	cmd := exec.CommandContext(harness.Context(t), binary, argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.NobodyUID, Gid: harness.NobodyUID}}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("the helper failed: %v: %s%s", err, out, &complaint)
	}
	return got
}
