package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// startRefusal is a start that fails, with the code and reason it fails with.
type startRefusal struct {
	name   string
	change func(t *testing.T, r *execwirev1.StartProcessRequest)
	code   codes.Code
	reason string
}

// startRefusals is a function, because the programs that tests start are this program,
// and would fill megabytes of arguments at each start.
func startRefusals() []startRefusal {
	return []startRefusal{
		{"no command", func(_ *testing.T, r *execwirev1.StartProcessRequest) { r.Command = nil }, codes.InvalidArgument, "INVALID_FIELD"},
		{"no arguments", argv(), codes.InvalidArgument, "INVALID_FIELD"},
		{"an empty program", argv(""), codes.InvalidArgument, "INVALID_FIELD"},
		{"a program that is not there", argv("/no/such/program"), codes.NotFound, "PROGRAM_NOT_FOUND"},
		{"a program that is not in the PATH", argv("no-such-program"), codes.NotFound, "PROGRAM_NOT_FOUND"},
		{"a directory for a program", argv("/"), codes.FailedPrecondition, "PROGRAM_NOT_EXECUTABLE"},
		{"a file that may not be executed", file(0o644, "#!/bin/sh\n"), codes.FailedPrecondition, "PROGRAM_NOT_EXECUTABLE"},
		{"a file in no known format", file(0o755, "\x00\x01\x02"), codes.FailedPrecondition, "PROGRAM_NOT_EXECUTABLE"},
		{"a missing interpreter", file(0o755, "#!/no/such/interpreter\n"), codes.FailedPrecondition, "PROGRAM_NOT_EXECUTABLE"},
		{"a NUL in an argument", argv("/bin/echo", "a\x00b"), codes.InvalidArgument, "INVALID_FIELD"},
		{"a NUL in the environment", env("A", "b\x00c"), codes.InvalidArgument, "INVALID_FIELD"},
		{"a NUL in a name", env("A\x00B", "c"), codes.InvalidArgument, "INVALID_FIELD"},
		{"a NUL in the working directory", cwd("tmp\x00"), codes.InvalidArgument, "INVALID_FIELD"},
		{"a working directory that is not there", cwd("/no/such/directory"), codes.FailedPrecondition, "BAD_WORKING_DIRECTORY"},
		{"a file for a working directory", cwd("/etc/passwd"), codes.FailedPrecondition, "BAD_WORKING_DIRECTORY"},
		{"too many arguments", argv("/bin/echo", strings.Repeat("x", 3<<20)), codes.InvalidArgument, "ARGUMENT_LIST_TOO_LONG"},
		{"a message that is too large", argv("/bin/echo", strings.Repeat("x", 5<<20)), codes.ResourceExhausted, "MESSAGE_TOO_LARGE"},
		{"an id that is too long", func(_ *testing.T, r *execwirev1.StartProcessRequest) { r.ProcessId = strings.Repeat("x", 1025) }, codes.InvalidArgument, "INVALID_FIELD"},
		{"a session that is not there", func(_ *testing.T, r *execwirev1.StartProcessRequest) { r.SessionId = "nowhere" }, codes.NotFound, "SESSION_NOT_FOUND"},
		{"a timeout of zero", func(_ *testing.T, r *execwirev1.StartProcessRequest) {
			r.Limits = &execwirev1.ProcessLimits{Timeout: durationpb.New(0)}
		}, codes.InvalidArgument, "INVALID_FIELD"},
		{"a terminal without columns", func(_ *testing.T, r *execwirev1.StartProcessRequest) {
			r.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{Size: &execwirev1.TerminalSize{Rows: 5}}}}
		}, codes.InvalidArgument, "INVALID_FIELD"},
		{"a sandbox that says nothing", func(_ *testing.T, r *execwirev1.StartProcessRequest) {
			r.GetCommand().GetDirect().Sandbox = &execwirev1.SandboxPolicy{}
		}, codes.InvalidArgument, "INVALID_FIELD"},
		{"a sandbox without the program", func(_ *testing.T, r *execwirev1.StartProcessRequest) {
			r.GetCommand().GetDirect().Sandbox = &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
				FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{}}}}}
		}, codes.NotFound, "PROGRAM_NOT_FOUND"},
	}
}

func argv(argv ...string) func(*testing.T, *execwirev1.StartProcessRequest) {
	return func(_ *testing.T, r *execwirev1.StartProcessRequest) { r.GetCommand().GetDirect().Argv = argv }
}

func cwd(path string) func(*testing.T, *execwirev1.StartProcessRequest) {
	return func(_ *testing.T, r *execwirev1.StartProcessRequest) {
		r.GetCommand().GetDirect().WorkingDirectory = path
	}
}

func env(name, value string) func(*testing.T, *execwirev1.StartProcessRequest) {
	return func(_ *testing.T, r *execwirev1.StartProcessRequest) {
		r.GetCommand().GetDirect().Env = map[string]string{name: value}
	}
}

// file makes the program a file with this mode and text.
func file(mode os.FileMode, text string) func(*testing.T, *execwirev1.StartProcessRequest) {
	return func(t *testing.T, r *execwirev1.StartProcessRequest) {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		r.GetCommand().GetDirect().Argv = []string{path}
	}
}

// Every failed start has a reason, and does not use the id.
func TestInvalidStarts_AreRejected(t *testing.T) {
	server := harness.NewServer(t, nil)
	for _, d := range harness.Transports {
		for i, tt := range startRefusals() {
			t.Run(string(d)+"/"+tt.name, func(t *testing.T) {
				s := harness.NewScenario(t, server, d)
				request := s.Request(harness.Shell("exit 0"), harness.WithID(fmt.Sprintf("refused%d", i))).GetProcess()
				tt.change(t, request)
				response, err := s.Processes.StartProcess(s.Ctx, request)
				if err == nil {
					t.Fatalf("it was started: %v", response)
				}
				expectRefusal(s, err, tt.code, tt.reason)
				if len(request.GetProcessId()) > 256 || request.GetSessionId() != "" {
					return
				}
				_, err = s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{ProcessId: request.GetProcessId()})
				expectRefusal(s, err, codes.NotFound, "PROCESS_NOT_FOUND")
			})
		}
	}
}

// expectRefusal checks code and reason, and that there is a message.
func expectRefusal(s *harness.Scenario, err error, code codes.Code, reason string) {
	s.Helper()
	s.ExpectReason(err, reason)
	if got := status.Convert(err); got.Code() != code || got.Message() == "" {
		s.Errorf("the code is %v, want %v: %v", got.Code(), code, err)
	}
	var typed *client.Error
	if reason == "INVALID_FIELD" && (!errors.As(client.FromRPC(err), &typed) || len(typed.Fields) == 0) {
		s.Errorf("no field is named: %v", err)
	}
}

// TestInvalidRequests_AreRejected tries invalid calls on processes.
func TestInvalidRequests_AreRejected(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		s.Start(harness.Shell("exit 0"), harness.WithID("over"))
		s.AwaitClosed("over")
		s.Start(harness.Program("echo"), harness.WithStdin, harness.WithID("listens"))
		s.Start(harness.Program("sleep"), harness.WithID("deaf"))
		s.Start(harness.Program("sleep"), harness.WithTerminal(24, 80), harness.WithID("terminal"))
		s.Start(harness.Program("sleep"), harness.WithStdin, harness.WithID("closed"))
		s.CloseStdin("closed")
		s.CloseStdin("closed") // twice is no error
		for _, tt := range []struct {
			name   string
			call   func(ctx context.Context, p execwirev1.ProcessServiceClient) error
			code   codes.Code
			reason string
		}{
			{"no id", write("", "x"), codes.InvalidArgument, "INVALID_FIELD"},
			{"write to nobody", write("nobody", "x"), codes.NotFound, "PROCESS_NOT_FOUND"},
			{"write to closed stdin", write("closed", "x"), codes.FailedPrecondition, "STDIN_CLOSED"},
			{"write to no stdin", write("deaf", "x"), codes.FailedPrecondition, "STDIN_NOT_PIPED"},
			{"write too much", write("listens", strings.Repeat("x", 1<<20+1)), codes.ResourceExhausted, "WRITE_TOO_LARGE"},
			{"close a terminal", closeInput("terminal"), codes.FailedPrecondition, "STDIN_IS_TERMINAL"},
			{"close no stdin", closeInput("deaf"), codes.FailedPrecondition, "STDIN_NOT_PIPED"},
			{"resize a pipe", resize("listens", 10, 10), codes.FailedPrecondition, "NOT_A_TERMINAL"},
			{"resize to nothing", resize("terminal", 0, 10), codes.InvalidArgument, "INVALID_FIELD"},
			{"resize beyond", resize("terminal", 10, 1<<16), codes.InvalidArgument, "INVALID_FIELD"},
			{"signal to the dead", signal("over", harness.Sigterm, harness.ToGroup), codes.FailedPrecondition, "PROCESS_EXITED"},
			{"signal to nobody", signal("nobody", harness.Sigterm, harness.ToGroup), codes.NotFound, "PROCESS_NOT_FOUND"},
			{"no signal", signal("deaf", 0, harness.ToGroup), codes.InvalidArgument, "INVALID_FIELD"},
			{"signal 65", signal("deaf", 65, harness.ToGroup), codes.InvalidArgument, "INVALID_FIELD"},
			{"no foreground", signal("deaf", harness.Sigterm, harness.ToForeground), codes.FailedPrecondition, "NOT_A_TERMINAL"},
			{"wait for a bad pattern", waitForPattern("deaf", "("), codes.InvalidArgument, "INVALID_FIELD"},
			{"wait for a pattern of nobody", waitForPattern("nobody", "x"), codes.NotFound, "PROCESS_NOT_FOUND"},
		} {
			expectCall(s, tt.name, tt.call(s.Ctx, s.Processes), tt.code, tt.reason)
		}
		for _, id := range []string{"listens", "deaf", "terminal", "closed"} {
			s.Terminate(id, harness.Forced)
		}
	})
}

func expectCall(s *harness.Scenario, name string, err error, code codes.Code, reason string) {
	s.Helper()
	if err == nil {
		s.Errorf("%s: it was done", name)
		return
	}
	before := s.Failed()
	expectRefusal(s, err, code, reason)
	if s.Failed() && !before {
		s.Errorf("that was: %s", name)
	}
}

type call = func(ctx context.Context, p execwirev1.ProcessServiceClient) error

func write(id, data string) call {
	return func(ctx context.Context, p execwirev1.ProcessServiceClient) error {
		_, err := p.WriteStdin(ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: []byte(data)})
		return err
	}
}

func closeInput(id string) call {
	return func(ctx context.Context, p execwirev1.ProcessServiceClient) error {
		_, err := p.CloseStdin(ctx, &execwirev1.CloseStdinRequest{ProcessId: id})
		return err
	}
}

func resize(id string, rows, columns uint32) call {
	return func(ctx context.Context, p execwirev1.ProcessServiceClient) error {
		_, err := p.ResizeTerminal(ctx, &execwirev1.ResizeTerminalRequest{ProcessId: id,
			Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}})
		return err
	}
}

func signal(id string, signal execwirev1.Signal, target execwirev1.SignalTarget) call {
	return func(ctx context.Context, p execwirev1.ProcessServiceClient) error {
		_, err := p.SignalProcess(ctx, &execwirev1.SignalProcessRequest{ProcessId: id, Signal: signal, Target: target})
		return err
	}
}

func waitForPattern(id, expression string) call {
	return func(ctx context.Context, p execwirev1.ProcessServiceClient) error {
		_, err := p.WaitProcess(ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Pattern{Pattern: &execwirev1.WaitForPattern{RegularExpression: expression}}})
		return err
	}
}

// A stream with an invalid first message ends with a reason. Later invalid messages do not end
// it.
func TestInvalidRuns_AreRejected(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		start := s.Request(harness.Shell("exit 0"))
		tooLong := s.Request(harness.Shell("exit 0"), harness.WithGrace(1000*time.Hour))
		for _, tt := range []struct {
			name   string
			first  *execwirev1.RunProcessRequest
			code   codes.Code
			reason string
		}{
			{"nothing", &execwirev1.RunProcessRequest{}, codes.FailedPrecondition, "UNEXPECTED_MESSAGE"},
			{"input first", &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{Stdin: &execwirev1.RunStdin{}}}, codes.FailedPrecondition, "UNEXPECTED_MESSAGE"},
			{"resume of nobody", &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{Resume: &execwirev1.RunResume{ProcessId: "nobody"}}}, codes.NotFound, "PROCESS_NOT_FOUND"},
			{"a grace that is too long", &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: tooLong}}, codes.InvalidArgument, "INVALID_FIELD"},
			{"start of nothing", &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{}}}, codes.InvalidArgument, "INVALID_FIELD"},
		} {
			stream, err := s.Processes.RunProcess(s.Ctx)
			if err == nil {
				_ = stream.Send(tt.first)
				_, err = stream.Recv()
			}
			expectCall(s, tt.name, err, tt.code, tt.reason)
		}

		p := s.Run(harness.Program("echo"), harness.WithStdin)
		signalOwned(p, 0, harness.ToGroup)
		awaitRejected(p, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		resizeTerminal(p, 10, 10)
		awaitRejected(p, execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL)
		p.Write("unharmed")
		p.ExpectOutput(harness.StdoutOf, "unharmed")
		p.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}})
		s.ExpectReason(p.Failure(), "UNEXPECTED_MESSAGE")
		q := s.Own(p.ID, p.Last)
		q.Acknowledge(1 << 40)
		s.ExpectReason(q.Failure(), "SEQ_NOT_REACHED")
	})
}
