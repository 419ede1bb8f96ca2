package transports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/testproc"
)

// processScenarios are about the start and the end of processes.
var processScenarios = []scenario{
	{name: "exit codes", do: exitCodes},
	{name: "signals", do: signals, except: otherwiseWithJSON("deaths, as the reference tells them")},
	{name: "a terminal and its size", do: terminalSizes, except: notWithReferences("the size of a terminal")},
	{name: "much input and its end", do: muchInput, except: notWithReferences("cannot close the input")},
	{name: "no input", do: noInput},
	{name: "a tree that is killed", do: killedTree},
	{name: "a graceful end", do: gracefulEnd, except: otherwiseWithReferences("an end, however it was asked for")},
	{name: "a signal", do: sentSignal, except: notWithReferences("signal")},
	{name: "a context that is done", do: doneContext},
	{name: "a timeout of the process", do: timedOutProcess, except: notWithJSON("a limit of a process")},
	{name: "starts that fail", do: failedStarts},
	{name: "the environment", do: givenEnvironment},
	{name: "a sandboxed process", do: sandboxedProcess, except: notWithOlder("does not confine processes")},
	{name: "a name that is taken", do: duplicateID, except: notWithJSON("a process cannot be left behind")},
	{name: "waits", do: waitsFor, except: notWithJSON("a process cannot be left behind")},
	{name: "waits for what a process does", do: waitsForMore, except: notWithJSON("a process cannot be left behind")},
}

func exitCodes(v *scenarioRun) error {
	for _, code := range []int{0, 1, 3, 255} {
		exit, _, _, err := v.run(harness.Program("exit", fmt.Sprint(code)), nil)
		if err != nil {
			return err
		}
		v.expectExit(exit, code, 0, harness.ByItself)
	}
	return nil
}

func signals(v *scenarioRun) error {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
		exit, _, _, err := v.run(harness.Program("signal-self", fmt.Sprint(int(signal))), nil)
		if err != nil {
			return err
		}
		v.expectExit(exit, 0, signal, harness.ByItself)
		if exit.ShellCode() != 128+int(signal) {
			v.Errorf("the code of a shell is %d", exit.ShellCode())
		}
	}
	return nil
}

func terminalSizes(v *scenarioRun) error {
	input, keys := io.Pipe()
	defer func() { _ = keys.Close() }()
	resize := make(chan *execwirev1.TerminalSize, 1)
	said := &expecting{text: map[string]func(){
		"31x91\r\n":  func() { resize <- &execwirev1.TerminalSize{Rows: 41, Columns: 101} },
		"41x101\r\n": func() { _ = keys.Close() },
	}}
	exit, err := v.client.Run(v.ctx, client.RunOptions{
		Process: v.process(harness.Program("winsize"), harness.WithTerminal(31, 91)), Stdin: input, Stdout: said, Resize: resize})
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("what the terminal shows", said.String(), "31x91\r\n41x101\r\n")
	return nil
}

// expecting is a writer that calls a function when a text has arrived.
type expecting struct {
	bytes.Buffer
	text map[string]func()
}

func (e *expecting) Write(p []byte) (int, error) {
	n, err := e.Buffer.Write(p)
	for text, do := range e.text {
		if strings.Contains(e.String(), text) {
			delete(e.text, text)
			do()
		}
	}
	return n, err
}

func muchInput(v *scenarioRun) error {
	const size = 5 << 20
	checked := testproc.StdoutPattern.NewVerifier()
	var end bytes.Buffer
	exit, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(harness.Program("echo")),
		Stdin: testproc.StdoutPattern.Reader(size), Stdout: checked, Stderr: &end})
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("what it says at the end", end.String(), "end of input\n")
	if checked.Offset() != size {
		v.Errorf("received %d bytes of %d back", checked.Offset(), size)
	}
	return nil
}

func noInput(v *scenarioRun) error {
	exit, stdout, stderr, err := v.run(harness.Program("echo"), nil)
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("stdout", stdout, "")
	v.expectText("stderr", stderr, "end of input\n")
	return nil
}

// terminate runs a program and terminates it after its first line, which it returns.
func (v *scenarioRun) terminate(argv []string, how *execwirev1.Termination) (exit client.Exit, line string, err error) {
	terminate := make(chan *execwirev1.Termination, 1)
	said := &expecting{text: map[string]func(){"\n": func() { terminate <- how }}}
	exit, err = v.client.Run(v.ctx, client.RunOptions{Process: v.process(argv), Stdout: said, Terminate: terminate})
	return exit, said.String(), err
}

// expectGone waits until the processes whose pids are in a line have ended.
func (v *scenarioRun) expectGone(line string) {
	v.Helper()
	for _, text := range strings.Fields(line)[1:] {
		var pid int32
		if _, err := fmt.Sscan(text, &pid); err != nil {
			v.Fatalf("%q: %v", line, err)
		}
		harness.Eventually(v, fmt.Sprintf("process %d is gone", pid), func() bool { return !harness.ProcessAlive(pid) })
	}
}

func killedTree(v *scenarioRun) error {
	exit, line, err := v.terminate(harness.Program("tree", "3"), harness.Forced)
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, syscall.SIGKILL, harness.Terminated)
	v.expectGone(line)
	return nil
}

func gracefulEnd(v *scenarioRun) error {
	exit, said, err := v.terminate(harness.Program("trap-term"), harness.Gracefully(harness.StepTimeout))
	if err != nil {
		return err
	}
	v.expectExit(exit, 7, 0, harness.Terminated)
	v.expectText("stdout", said, "ready\nterminated\n")
	return nil
}

func sentSignal(v *scenarioRun) error {
	signals := make(chan *execwirev1.RunSignal, 1)
	said := &expecting{text: map[string]func(){
		"ready\n": func() {
			signals <- &execwirev1.RunSignal{Signal: execwirev1.Signal_SIGNAL_HUP, Target: harness.ToGroup}
		},
	}}
	ctx, done := context.WithCancelCause(v.ctx)
	defer done(nil)
	exit, err := v.client.Run(ctx, client.RunOptions{
		OnRejected: func(r *execwirev1.RunRejected) {
			done(&client.Error{Code: codes.Unimplemented, Reason: r.GetReason(), Message: r.GetMessage()})
		},
		Process: v.process(harness.Shell("trap 'echo hup; exit 9' HUP; echo ready; while :; do sleep 0.02; done")),
		Stdout:  said, Signals: signals})
	if err != nil {
		return err
	}
	v.expectExit(exit, 9, 0, harness.ByItself)
	v.expectText("stdout", said.String(), "ready\nhup\n")
	return nil
}

var errEnough = errors.New("the test has seen enough")

func doneContext(v *scenarioRun) error {
	ctx, done := harness.ContextWithoutTest()
	defer done(nil)
	said := &expecting{text: map[string]func(){"\n": func() { done(errEnough) }}}
	if _, err := v.client.Run(ctx, client.RunOptions{Process: v.process(harness.Program("tree", "2")), Stdout: said}); !errors.Is(err, errEnough) {
		return err
	}
	v.expectGone(said.String())
	return nil
}

func timedOutProcess(v *scenarioRun) error {
	exit, _, _, err := v.run(harness.Program("sleep"), nil, harness.WithTimeout(50*time.Millisecond))
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, syscall.SIGKILL, harness.TimedOut)
	return nil
}

func failedStarts(v *scenarioRun) error {
	file := filepath.Join(v.dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		v.Fatal(err)
	}
	in := func(dir string) harness.Option {
		return func(r *execwirev1.RunStart) { r.Process.GetCommand().GetDirect().WorkingDirectory = dir }
	}
	for _, tt := range []struct {
		what   string
		argv   []string
		option harness.Option
		reason string
		field  string
	}{
		{"a program that is not there", []string{"/no/such"}, harness.WithStdin, "PROGRAM_NOT_FOUND", ""},
		{"a name that is not in PATH", []string{"no-such-program"}, harness.WithStdin, "PROGRAM_NOT_FOUND", ""},
		{"a file that is no program", []string{file}, harness.WithStdin, "PROGRAM_NOT_EXECUTABLE", ""},
		{"a directory that is not there", []string{"true"}, in("/no/such"), "BAD_WORKING_DIRECTORY", ""},
		{"a directory that is none", []string{"true"}, in(file), "BAD_WORKING_DIRECTORY", ""},
		{"no program", nil, harness.WithStdin, "INVALID_FIELD", "start.process.command.direct.argv"},
		{"a terminal without columns", []string{"true"}, harness.WithTerminal(1, 0), "INVALID_FIELD", "start.process.io.terminal.size.columns"},
		{"too much of an argument", []string{"true", strings.Repeat("x", 200_000)}, harness.WithStdin, "ARGUMENT_LIST_TOO_LONG", ""},
	} {
		_, _, _, err := v.run(tt.argv, nil, tt.option)
		v.expectReason(tt.what, err, tt.reason)
		if failed := (*client.Error)(nil); tt.field != "" && errors.As(err, &failed) && (len(failed.Fields) != 1 || failed.Fields[0].Field != tt.field) {
			v.Errorf("%s: the fields are %+v, want %s", tt.what, failed.Fields, tt.field)
		}
	}
	return nil
}

func givenEnvironment(v *scenarioRun) error {
	const all, core, none = execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL, execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE, execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE
	for _, tt := range []struct {
		policy *execwirev1.EnvironmentPolicy
		want   []string
	}{
		{nil, []string{"OWN=1"}},
		{&execwirev1.EnvironmentPolicy{Inherit: none, Set: map[string]string{"OWN": "0", "SET": "é\n"}}, []string{"OWN=1", "SET=é\n"}},
		{&execwirev1.EnvironmentPolicy{Inherit: core}, []string{"HOME=/home/site", "OWN=1", "PATH=/usr/local/bin:/usr/bin:/bin"}},
		{&execwirev1.EnvironmentPolicy{Inherit: all, Exclude: []string{"g*"}}, []string{"HOME=/home/site", "OWN=1", "PATH=/usr/local/bin:/usr/bin:/bin", "SITE=here"}},
		{&execwirev1.EnvironmentPolicy{Inherit: all, IgnoreDefaultExcludes: true, IncludeOnly: []string{"SITE*", "OWN"}}, []string{"OWN=1", "SITE=here", "SITE_TOKEN=secret"}},
	} {
		_, stdout, _, err := v.run(harness.Program("env"), nil, func(r *execwirev1.RunStart) {
			direct := r.Process.GetCommand().GetDirect()
			direct.Env, direct.EnvironmentPolicy = map[string]string{"OWN": "1"}, tt.policy
		})
		if err != nil {
			return err
		}
		var got []string
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			v.Errorf("%q: %v", stdout, err)
		}
		got = v.site.without(got)
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			v.Errorf("%v: the environment is %q, want %q", tt.policy, got, tt.want)
		}
	}
	return nil
}

func sandboxedProcess(v *scenarioRun) error {
	writable := harness.ShortDir(v)
	confined := v.client.WithSandbox(client.Sandbox{Writable: []string{writable}}.Policy())
	var stdout bytes.Buffer
	exit, err := confined.Run(v.ctx, client.RunOptions{
		Process: v.process(harness.Shell("echo inside >" + writable + "/file && cat " + writable + "/file && echo outside >file")), Stdout: &stdout})
	if err != nil {
		return err
	}
	if exit.ShellCode() == 0 || !exit.SandboxDenied {
		v.Errorf("what a sandbox denies ended with %+v", exit)
	}
	v.expectText("stdout", stdout.String(), "inside\n")
	if _, err := os.Stat(filepath.Join(v.dir, "file")); !errors.Is(err, os.ErrNotExist) {
		v.Errorf("the sandbox did not hold: %v", err)
	}
	return nil
}

func duplicateID(v *scenarioRun) error {
	request := v.process(harness.Program("sleep"))
	if _, err := v.client.Processes().StartProcess(v.ctx, request); err != nil {
		return client.FromRPC(err)
	}
	request.GetCommand().GetDirect().Argv = harness.Program("exit", "0")
	_, err := v.client.Run(v.ctx, client.RunOptions{Process: request})
	v.expectReason("a name that is taken", err, "PROCESS_ALREADY_EXISTS")
	_, err = v.client.Processes().TerminateProcess(v.ctx, &execwirev1.TerminateProcessRequest{ProcessId: request.GetProcessId(), Termination: harness.Forced})
	return client.FromRPC(err)
}

func waitsFor(v *scenarioRun) error {
	id, err := v.start(harness.Program("sleep"))
	if err != nil {
		return err
	}
	response, err := v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: id, Wait: durationpb.New(10 * time.Millisecond),
		Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})
	if err != nil {
		return err
	}
	if response.GetSatisfied() {
		v.Errorf("a wait that is over: %v", response)
	}
	if _, err := v.client.Terminate(v.ctx, client.ProcessRef{ProcessID: id}, client.Termination{Force: true}); err != nil {
		return err
	}
	response, err = v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
	if err != nil {
		return err
	}
	if exit := response.GetProcess().GetExit(); !response.GetSatisfied() || exit.GetSignal() != harness.Sigkill || exit.GetCause() != harness.Terminated {
		v.Errorf("a wait for the end: %v", response)
	}
	_, err = v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: "nobody", Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})
	v.expectReason("a wait for nobody", err, "PROCESS_NOT_FOUND")
	return nil
}

func waitsForMore(v *scenarioRun) error {
	id, err := v.start(harness.Shell("echo ready to go; exec sleep 1000"))
	if err != nil {
		return err
	}
	port := testport.Reserve(v)
	listens, err := v.start(harness.Program("listen-child", fmt.Sprintf("127.0.0.1:%d", port)), harness.WithStdin)
	if err != nil {
		return err
	}
	for what, request := range map[string]*execwirev1.WaitProcessRequest{
		"pattern": {ProcessId: id, Condition: &execwirev1.WaitProcessRequest_Pattern{Pattern: &execwirev1.WaitForPattern{RegularExpression: `r\w+`}}},
		"idle":    {ProcessId: id, Condition: &execwirev1.WaitProcessRequest_Idle{Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(time.Millisecond)}}},
		"port":    {ProcessId: listens, Condition: &execwirev1.WaitProcessRequest_Port{Port: &execwirev1.WaitForPort{Port: uint32(port)}}},
	} {
		response, err := v.client.Wait(v.ctx, request)
		if err != nil {
			return err
		}
		if !response.GetSatisfied() || what == "pattern" && (string(response.GetMatch().GetData()) != "ready" || response.GetMatch().GetOffset() != 0 || response.GetMatch().GetSeq() != 1) {
			v.Errorf("a wait for %s: %v", what, response)
		}
	}
	for _, id := range []string{id, listens} {
		if _, err := v.client.Terminate(v.ctx, client.ProcessRef{ProcessID: id}, client.Termination{Force: true}); err != nil {
			return err
		}
	}
	return nil
}
