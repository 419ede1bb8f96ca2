package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// story is what a scenario is told with: a server of its own, one connection
// to it, and words for what clients do and expect.
type story struct {
	testing.TB
	ctx       context.Context
	server    *server
	door      door
	conn      grpc.ClientConnInterface
	wire      *proxy // nil in process
	processes execwirev1.ProcessServiceClient
	leases    execwirev1.SessionServiceClient
	session   string // where processes are; empty is the default session
	ids       atomic.Int64
}

// atEveryDoor tells a story once per door, each time to a new server.
func atEveryDoor(t *testing.T, tell func(*story)) {
	t.Helper()
	withConfig(t, nil, tell)
}

// withConfig is atEveryDoor for a server that is configured otherwise.
func withConfig(t *testing.T, tune func(*config.Config), tell func(*story)) {
	t.Helper()
	for _, d := range doors {
		t.Run(string(d), func(t *testing.T) { tell(newStory(t, newServer(t, tune), d)) })
	}
}

func newStory(t testing.TB, s *server, d door) *story {
	t.Helper()
	conn, wire := s.connect(t, d)
	return &story{TB: t, ctx: testContext(t), server: s, door: d, conn: conn, wire: wire,
		processes: execwirev1.NewProcessServiceClient(conn), leases: execwirev1.NewSessionServiceClient(conn)}
}

// option changes what is run.
type option func(*execwirev1.RunStart)

// stdin gives the process a pipe to read.
func stdin(r *execwirev1.RunStart) {
	r.Process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
		Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
}

// terminal gives the process a terminal.
func terminal(rows, columns uint32) option {
	return func(r *execwirev1.RunStart) {
		r.Process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{
			Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}}}}
	}
}

func timeout(d time.Duration) option {
	return func(r *execwirev1.RunStart) {
		r.Process.Limits = &execwirev1.ProcessLimits{Timeout: durationpb.New(d)}
	}
}

func named(id string) option {
	return func(r *execwirev1.RunStart) { r.Process.ProcessId = id }
}

func grace(d time.Duration) option {
	return func(r *execwirev1.RunStart) { r.Grace = durationpb.New(d) }
}

// program is a program of package testproc, shell a script.
func program(name string, args ...string) []string { return testproc.Argv(name, args...) }
func shell(script string) []string                 { return []string{"/bin/sh", "-c", script} }

// environment is what every process gets. Programs built with the race detector
// would otherwise sleep a second before they exit.
func environment() map[string]string {
	return map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "GORACE": "atexit_sleep_ms=0"}
}

// request says what to run, under an id that is new to the story.
func (s *story) request(argv []string, options ...option) *execwirev1.RunStart {
	r := &execwirev1.RunStart{Process: &execwirev1.StartProcessRequest{
		SessionId: s.session,
		ProcessId: fmt.Sprintf("p%d", s.ids.Add(1)),
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: environment()}}},
	}}
	for _, option := range options {
		option(r)
	}
	return r
}

// elsewhere does something in the default session.
func (s *story) elsewhere(do func()) {
	session := s.session
	s.session = ""
	do()
	s.session = session
}

// start starts a process that nobody owns and returns its id.
func (s *story) start(argv []string, options ...option) string {
	s.Helper()
	response, err := s.processes.StartProcess(s.ctx, s.request(argv, options...).GetProcess())
	if err != nil {
		s.Fatalf("StartProcess: %v", err)
	}
	return response.GetProcess().GetProcessId()
}

// get describes a process.
func (s *story) get(id string) *execwirev1.Process {
	s.Helper()
	response, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{SessionId: s.session, ProcessId: id})
	if err != nil {
		s.Fatalf("GetProcess: %v", err)
	}
	return response.GetProcess()
}

// awaitExit waits until the process's exit is known.
func (s *story) awaitExit(id string) *execwirev1.ExitRecord {
	s.Helper()
	return s.wait(&execwirev1.WaitProcessRequest{SessionId: s.session, ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}}).GetExit()
}

// awaitClosed waits until the process's log has ended.
func (s *story) awaitClosed(id string) *execwirev1.Process {
	s.Helper()
	return s.wait(&execwirev1.WaitProcessRequest{SessionId: s.session, ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
}

func (s *story) wait(request *execwirev1.WaitProcessRequest) *execwirev1.Process {
	s.Helper()
	response, err := s.processes.WaitProcess(s.ctx, request)
	if err != nil || !response.GetSatisfied() {
		s.Fatalf("WaitProcess = %v, %v", response, err)
	}
	return response.GetProcess()
}

func (s *story) awaitOwned(id string, owned bool) {
	s.Helper()
	eventually(s, fmt.Sprintf("owned is %v", owned), func() bool { return s.get(id).GetOwned() == owned })
}

func (s *story) write(id, text string) {
	s.Helper()
	if _, err := s.processes.WriteStdin(s.ctx, &execwirev1.WriteStdinRequest{SessionId: s.session, ProcessId: id, Data: []byte(text)}); err != nil {
		s.Fatalf("WriteStdin: %v", err)
	}
}

func (s *story) closeStdin(id string) {
	s.Helper()
	if _, err := s.processes.CloseStdin(s.ctx, &execwirev1.CloseStdinRequest{SessionId: s.session, ProcessId: id}); err != nil {
		s.Fatalf("CloseStdin: %v", err)
	}
}

// forced and gracefully are ways to end a process.
var forced = &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}

func gracefully(timeout time.Duration) *execwirev1.Termination {
	return &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{
		Graceful: &execwirev1.GracefulTermination{Timeout: durationpb.New(timeout)}}}
}

func (s *story) terminate(id string, how *execwirev1.Termination) *execwirev1.TerminateProcessResponse {
	s.Helper()
	response, err := s.processes.TerminateProcess(s.ctx, &execwirev1.TerminateProcessRequest{SessionId: s.session, ProcessId: id, Termination: how})
	if err != nil {
		s.Fatalf("TerminateProcess: %v", err)
	}
	return response
}

// expectReason fails unless err carries the reason, by its name on the wire.
func (s *story) expectReason(err error, want string) {
	s.Helper()
	if got := reasonOf(err); got != want {
		s.Errorf("the reason is %s, want %s: %v", got, want, err)
	}
}

// reasonOf is the name of the reason that err carries.
func reasonOf(err error) string {
	return strings.TrimPrefix(client.Reason(err).String(), "ERROR_REASON_")
}

// expectEnd checks how a process ended: by a code, or by a signal if that is
// not 0.
func (s *story) expectEnd(exit *execwirev1.ExitRecord, code int32, signal execwirev1.Signal, cause execwirev1.ExitCause) {
	s.Helper()
	_, bySignal := exit.GetStatus().(*execwirev1.ExitRecord_Signal)
	if exit == nil || exit.GetExitCode() != code || exit.GetSignal() != signal || bySignal != (signal != 0) || exit.GetCause() != cause {
		s.Errorf("it ended with %v, want code %d, signal %v, cause %v", exit, code, signal, cause)
	}
}

// Ends that many stories have.
const (
	byItself     = execwirev1.ExitCause_EXIT_CAUSE_EXITED
	terminated   = execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
	timedOut     = execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT
	byShutdown   = execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN
	stdoutOf     = execwirev1.OutputStream_OUTPUT_STREAM_STDOUT
	stderrOf     = execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	terminalOf   = execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL
	sigkill      = execwirev1.Signal_SIGNAL_KILL
	sigterm      = execwirev1.Signal_SIGNAL_TERM
	noSignal     = execwirev1.Signal_SIGNAL_UNSPECIFIED
	toGroup      = execwirev1.SignalTarget_SIGNAL_TARGET_GROUP
	toLeader     = execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS
	toForeground = execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
)
