package client

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestCommand_Request_OnlyArgv_UsesDefaults(t *testing.T) {
	argv := []string{"make", "test"}
	request := Command{Argv: argv}.Request()
	argv[0] = "changed"
	direct := request.GetCommand().GetDirect()
	if direct.GetArgv()[0] != "make" || direct.GetWorkingDirectory() != "" {
		t.Errorf("got %v", direct)
	}
	if policy := direct.GetEnvironmentPolicy(); policy == nil || policy.GetInherit() != execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_UNSPECIFIED {
		t.Errorf("environment policy %v", policy)
	}
	if request.GetIo() != nil || request.GetLimits() != nil {
		t.Errorf("asks for more than it says: %v", request)
	}
}

func TestCommand_Request_SetsEveryField(t *testing.T) {
	request := Command{
		Argv: []string{"x"}, Dir: "/src", Env: map[string]string{"A": "b"},
		InheritEnv: execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL, PipeStdin: true,
		Timeout: time.Minute, NoOutputTimeout: time.Second, Nice: 3, LeaveDescendants: true,
		ResourceLimits: []*execwirev1.ResourceLimit{{Resource: execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES, Soft: 64}},
		Sandbox:        Sandbox{}.Policy(), SessionID: "s", ID: "p", Labels: map[string]string{"k": "v"}, Keep: time.Hour,
	}.Request()
	direct := request.GetCommand().GetDirect()
	if request.GetSessionId() != "s" || request.GetProcessId() != "p" || request.GetLabels()["k"] != "v" ||
		direct.GetWorkingDirectory() != "/src" || direct.GetEnv()["A"] != "b" || direct.GetSandbox() == nil ||
		direct.GetEnvironmentPolicy().GetInherit() != execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL ||
		request.GetIo().GetPipes().GetStdin() != execwirev1.StdinMode_STDIN_MODE_PIPE ||
		request.GetLimits().GetTimeout().AsDuration() != time.Minute || request.GetKeep().AsDuration() != time.Hour ||
		request.GetLimits().GetNoOutputTimeout().AsDuration() != time.Second || request.GetLimits().GetNice() != 3 ||
		request.GetLimits().GetResourceLimits()[0].GetSoft() != 64 || !request.GetLeaveDescendants() {
		t.Errorf("got %v", request)
	}
	if size := (Command{Terminal: &execwirev1.TerminalSize{Rows: 1, Columns: 2}}).Request().GetIo().GetTerminal().GetSize(); size.GetColumns() != 2 {
		t.Errorf("terminal of %v", size)
	}
	if terminal := (Command{Terminal: &execwirev1.TerminalSize{}}).Request().GetIo().GetTerminal(); terminal == nil || terminal.GetSize() != nil {
		t.Errorf("the zero size asks for %v", terminal)
	}
}

func TestOutput_ReturnsStdout(t *testing.T) {
	_, c := newFake(t, sends(nil, started(0), events(stdout(1, 0, "out"), stderr(2, 0, "err"), exited(3, 0), closed(4, 3, 3))))
	got, err := c.Output(t.Context(), Command{Argv: []string{"x"}})
	if string(got) != "out" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOutput_FailedCommand_ReturnsExitError(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	_, c := newFake(t, sends(nil, started(0), events(
		stdout(1, 0, "out"), stderr(2, 0, long), stderr(3, 20_000, long), stderr(4, 40_000, "why"), exited(5, 3), closed(6, 3, 40_003))))
	got, err := c.Output(t.Context(), Command{Argv: []string{"x"}})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Exit.Code != 3 || string(got) != "out" {
		t.Fatalf("got %q, %v", got, err)
	}
	if len(exit.Stderr) != exitErrorBytes || !bytes.HasSuffix(exit.Stderr, []byte("xwhy")) {
		t.Errorf("%d bytes of stderr end in %q", len(exit.Stderr), exit.Stderr[len(exit.Stderr)-5:])
	}
}

func TestOutput_MissingOutput_Fails(t *testing.T) {
	_, c := newFake(t, sends(nil, started(0), events(gap(2, 5), stdout(2, 5, "out"), exited(3, 0), closed(4, 8))))
	got, err := c.Output(t.Context(), Command{Argv: []string{"x"}})
	var missing *MissingOutputError
	if !errors.As(err, &missing) || missing.DroppedBytes != 5 || string(got) != "out" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Without offsets, as over the exec-server protocol, only the gap reports what is missing.
func TestOutput_MissingOutputWithoutOffsets_Fails(t *testing.T) {
	_, c := newFake(t, sends(nil, started(0), events(gap(2, 5), stdout(2, 0, "out"), exited(3, 0), closed(4, 3))))
	got, err := c.Output(t.Context(), Command{Argv: []string{"x"}})
	var missing *MissingOutputError
	if !errors.As(err, &missing) || missing.DroppedBytes != 5 || string(got) != "out" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOutput_BeyondLimit_TerminatesCommand(t *testing.T) {
	var g limitedBuffer
	piece := make([]byte, MaxOutputBytes/2)
	for range 2 {
		if _, err := g.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	_, err := g.Write([]byte("x"))
	var size *OutputSizeError
	if !errors.As(err, &size) || size.LimitBytes != MaxOutputBytes {
		t.Errorf("got %v", err)
	}
}
