package harness

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/testowner"
	"github.com/execwire/execwire/internal/testproc"
)

// AwaitStopped waits until the server has stopped.
func (s *Scenario) AwaitStopped() {
	s.Helper()
	select {
	case err := <-s.Server.served:
		s.Server.served <- err
	case <-s.Ctx.Done():
		s.Fatal("the server does not stop")
	}
}

// Matches reports whether a verifier accepts output.
func Matches(v *testproc.Verifier, b []byte) bool {
	_, err := v.Write(b)
	return err == nil
}

// SmallRetention configures a server that retains little output per process, and only in memory.
func SmallRetention(cfg *config.Config) { cfg.RetainedOutput, cfg.OutputFile = 64<<10, 0 }

// FloodBytes is more than a server with SmallRetention retains and all buffers on the
// way to a client hold.
const FloodBytes = 4 << 20

// AppendArgs gives a script its "$@".
func AppendArgs(argv []string) Option {
	return func(r *execwirev1.RunStart) {
		direct := r.GetProcess().GetCommand().GetDirect()
		direct.Argv = append(append(direct.GetArgv(), "sh"), argv...)
	}
}

// ExpectRunning checks that a process still runs after another one was started and
// has ended.
func (s *Scenario) ExpectRunning(id string) {
	s.Helper()
	s.Elsewhere(func() { s.AwaitClosed(s.Start(Program("flood", "-bytes", "1000000"))) })
	if exit := s.Get(id).GetExit(); exit != nil {
		s.Errorf("it ended with %v", exit)
	}
}

// Scenario is a server of its own and one connection to it, with methods for what
// clients do and expect.
type Scenario struct {
	testing.TB
	Ctx       context.Context
	Server    *Server
	transport Transport
	Conn      grpc.ClientConnInterface
	Proxy     *Proxy // nil in process
	Processes execwirev1.ProcessServiceClient
	Leases    execwirev1.SessionServiceClient
	Session   string // session of the processes; empty is the default session
	own       testowner.Open
	ids       atomic.Int64
}

// OverTransports runs a test over each transport, each time with a new server.
func OverTransports(t *testing.T, run func(*Scenario)) {
	t.Helper()
	WithConfig(t, nil, run)
}

// WithConfig is OverTransports with another configuration of the server.
func WithConfig(t *testing.T, tune func(*config.Config), run func(*Scenario)) {
	t.Helper()
	for _, d := range Transports {
		t.Run(string(d), func(t *testing.T) { run(NewScenario(t, NewServer(t, tune), d)) })
	}
}

// InEachForm is WithConfig, and once more over TCP with owners that make calls instead of
// using a bidirectional stream.
func InEachForm(t *testing.T, tune func(*config.Config), tell func(*Scenario)) {
	t.Helper()
	WithConfig(t, tune, tell)
	t.Run("OwnProcess", func(t *testing.T) {
		s := NewScenario(t, NewServer(t, tune), TCPTransport)
		s.own = testowner.Calls
		tell(s)
	})
}

// NewScenario connects to a server over a transport.
func NewScenario(t testing.TB, s *Server, d Transport) *Scenario {
	t.Helper()
	conn, wire := s.Connect(t, d)
	return &Scenario{TB: t, Ctx: Context(t), Server: s, transport: d, Conn: conn, Proxy: wire, own: testowner.Run,
		Processes: execwirev1.NewProcessServiceClient(conn), Leases: execwirev1.NewSessionServiceClient(conn)}
}

// Option changes a request that starts a process.
type Option func(*execwirev1.RunStart)

// WithStdin gives the process a pipe to read.
func WithStdin(r *execwirev1.RunStart) {
	r.Process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{
		Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
}

// WithTerminal gives the process a terminal.
func WithTerminal(rows, columns uint32) Option {
	return func(r *execwirev1.RunStart) {
		r.Process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{
			Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}}}}
	}
}

// WithTimeout limits how long a process runs.
func WithTimeout(d time.Duration) Option {
	return func(r *execwirev1.RunStart) {
		r.Process.Limits = &execwirev1.ProcessLimits{Timeout: durationpb.New(d)}
	}
}

// WithID chooses the ID of a process.
func WithID(id string) Option {
	return func(r *execwirev1.RunStart) { r.Process.ProcessId = id }
}

// WithGrace sets how long a process outlives the connection of its owner.
func WithGrace(d time.Duration) Option {
	return func(r *execwirev1.RunStart) { r.Grace = durationpb.New(d) }
}

// Program returns the command line of a program of package testproc.
func Program(name string, args ...string) []string { return testproc.Argv(name, args...) }

// Shell returns the arguments that run a script.
func Shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// Environment returns the environment of processes. A program built with the race
// detector ends at the first race, so that its test fails, and does not sleep for a
// second before it exits.
func Environment() map[string]string {
	return map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "GORACE": "halt_on_error=1 atexit_sleep_ms=0"}
}

// Request returns a request with an ID that is new to the scenario.
func (s *Scenario) Request(argv []string, options ...Option) *execwirev1.RunStart {
	r := &execwirev1.RunStart{Process: &execwirev1.StartProcessRequest{
		SessionId: s.Session,
		ProcessId: fmt.Sprintf("p%d", s.ids.Add(1)),
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: Environment()}}},
	}}
	for _, option := range options {
		option(r)
	}
	return r
}

// Elsewhere calls a function in the default session.
func (s *Scenario) Elsewhere(do func()) {
	session := s.Session
	s.Session = ""
	do()
	s.Session = session
}

// Start starts a process without an owner and returns its ID.
func (s *Scenario) Start(argv []string, options ...Option) string {
	s.Helper()
	response, err := s.Processes.StartProcess(s.Ctx, s.Request(argv, options...).GetProcess())
	if err != nil {
		s.Fatalf("StartProcess: %v", err)
	}
	return response.GetProcess().GetProcessId()
}

// Get calls GetProcess.
func (s *Scenario) Get(id string) *execwirev1.Process {
	s.Helper()
	response, err := s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{SessionId: s.Session, ProcessId: id})
	if err != nil {
		s.Fatalf("GetProcess: %v", err)
	}
	return response.GetProcess()
}

// AwaitClosed waits until the process is closed.
func (s *Scenario) AwaitClosed(id string) *execwirev1.Process {
	s.Helper()
	return s.Wait(&execwirev1.WaitProcessRequest{SessionId: s.Session, ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}})
}

// Wait calls WaitProcess.
func (s *Scenario) Wait(request *execwirev1.WaitProcessRequest) *execwirev1.Process {
	s.Helper()
	response, err := s.Processes.WaitProcess(s.Ctx, request)
	if err != nil || !response.GetSatisfied() {
		s.Fatalf("WaitProcess = %v, %v", response, err)
	}
	return response.GetProcess()
}

// AwaitOwned waits until a process has an owner, or has none.
func (s *Scenario) AwaitOwned(id string, owned bool) {
	s.Helper()
	Eventually(s, fmt.Sprintf("owned is %v", owned), func() bool { return s.Get(id).GetOwned() == owned })
}

// Write calls WriteStdin.
func (s *Scenario) Write(id, text string) {
	s.Helper()
	if _, err := s.Processes.WriteStdin(s.Ctx, &execwirev1.WriteStdinRequest{SessionId: s.Session, ProcessId: id, Data: []byte(text)}); err != nil {
		s.Fatalf("WriteStdin: %v", err)
	}
}

// CloseStdin ends the input of a process.
func (s *Scenario) CloseStdin(id string) {
	s.Helper()
	if _, err := s.Processes.CloseStdin(s.Ctx, &execwirev1.CloseStdinRequest{SessionId: s.Session, ProcessId: id}); err != nil {
		s.Fatalf("CloseStdin: %v", err)
	}
}

// Forced kills a process tree at once.
var Forced = &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}

// Gracefully asks a process tree to end, and kills it after the timeout.
func Gracefully(timeout time.Duration) *execwirev1.Termination {
	return &execwirev1.Termination{Mode: &execwirev1.Termination_Graceful{
		Graceful: &execwirev1.GracefulTermination{Timeout: durationpb.New(timeout)}}}
}

// Terminate calls TerminateProcess.
func (s *Scenario) Terminate(id string, how *execwirev1.Termination) *execwirev1.TerminateProcessResponse {
	s.Helper()
	response, err := s.Processes.TerminateProcess(s.Ctx, &execwirev1.TerminateProcessRequest{SessionId: s.Session, ProcessId: id, Termination: how})
	if err != nil {
		s.Fatalf("TerminateProcess: %v", err)
	}
	return response
}

// ExpectReason fails unless err carries the reason, by its name on the wire.
func (s *Scenario) ExpectReason(err error, want string) {
	s.Helper()
	if got := ReasonOf(err); got != want {
		s.Errorf("the reason is %s, want %s: %v", got, want, err)
	}
}

// ReasonOf returns the name of the reason of an error.
func ReasonOf(err error) string {
	return errorinfo.Name(client.Reason(err))
}

// ExpectEnd checks how a process ended: by a code, or by a signal if that is
// not 0.
func (s *Scenario) ExpectEnd(exit *execwirev1.ExitRecord, code int32, signal execwirev1.Signal, cause execwirev1.ExitCause) {
	s.Helper()
	_, bySignal := exit.GetStatus().(*execwirev1.ExitRecord_Signal)
	if exit == nil || exit.GetExitCode() != code || exit.GetSignal() != signal || bySignal != (signal != 0) || exit.GetCause() != cause {
		s.Errorf("it ended with %v, want code %d, signal %v, cause %v", exit, code, signal, cause)
	}
}

// Short names of values that many scenarios expect.
const (
	ByItself     = execwirev1.ExitCause_EXIT_CAUSE_EXITED
	Terminated   = execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
	TimedOut     = execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT
	ByShutdown   = execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN
	StdoutOf     = execwirev1.OutputStream_OUTPUT_STREAM_STDOUT
	StderrOf     = execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	TerminalOf   = execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL
	Sigkill      = execwirev1.Signal_SIGNAL_KILL
	Sigterm      = execwirev1.Signal_SIGNAL_TERM
	NoSignal     = execwirev1.Signal_SIGNAL_UNSPECIFIED
	ToGroup      = execwirev1.SignalTarget_SIGNAL_TARGET_GROUP
	ToLeader     = execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS
	ToForeground = execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
)
