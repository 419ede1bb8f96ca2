package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server"
)

// changed returns a valid start request, modified by change.
func changed(change func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand)) *execwirev1.StartProcessRequest {
	req := shell("p", "true")
	change(req, req.GetCommand().GetDirect())
	return req
}

func TestStart_MalformedRequest_NamesField(t *testing.T) {
	type start = execwirev1.StartProcessRequest
	type direct = execwirev1.DirectCommand
	tests := []struct {
		name, field string
		change      func(*start, *direct)
	}{
		{"no command", "command", func(r *start, _ *direct) { r.Command = nil }},
		{"empty command", "command", func(r *start, _ *direct) { r.Command = &execwirev1.ProcessCommand{} }},
		{"empty argv", "command.direct.argv", func(_ *start, d *direct) { d.Argv = nil }},
		{"empty program", "command.direct.argv[0]", func(_ *start, d *direct) { d.Argv[0] = "" }},
		{"NUL in argv", "command.direct.argv[2]", func(_ *start, d *direct) { d.Argv[2] = "a\x00b" }},
		{"NUL in arg0", "command.direct.arg0", func(_ *start, d *direct) { d.Arg0 = proto.String("\x00") }},
		{"NUL in env", `command.direct.env["X"]`, func(_ *start, d *direct) { d.Env["X"] = "\x00" }},
		{"NUL in the directory", "command.direct.working_directory", func(_ *start, d *direct) { d.WorkingDirectory = "/\x00" }},
		{"NUL in a relative directory", "command.direct.working_directory", func(_ *start, d *direct) { d.WorkingDirectory = "\x00" }},
		{"long id", "process_id", func(r *start, _ *direct) { r.ProcessId = strings.Repeat("x", server.MaxProcessIDBytes+1) }},
		{"a label without a name", "labels", withLabels(map[string]string{"": "x"})},
		{"a label with a long name", "labels", withLabels(map[string]string{strings.Repeat("x", server.MaxLabelNameBytes+1): ""})},
		{"a long label", `labels["x"]`, withLabels(map[string]string{"x": strings.Repeat("x", server.MaxLabelValueBytes+1)})},
		{"too many labels", "labels", withLabels(manyLabels(server.MaxLabels + 1))},
		{"no rows", "io.terminal.size.rows", func(r *start, _ *direct) { withTerminal(r, 0, 80) }},
		{"too many columns", "io.terminal.size.columns", func(r *start, _ *direct) { withTerminal(r, 24, 65536) }},
		{"unknown stdin mode", "io.pipes.stdin", func(r *start, _ *direct) { withStdin(r).GetIo().GetPipes().Stdin = 9 }},
		{"negative timeout", "limits.timeout", func(r *start, _ *direct) { r.Limits = &execwirev1.ProcessLimits{Timeout: seconds(-1)} }},
		{"zero timeout", "limits.timeout", func(r *start, _ *direct) { r.Limits = &execwirev1.ProcessLimits{Timeout: seconds(0)} }},
		{"malformed timeout", "limits.timeout", func(r *start, _ *direct) {
			r.Limits = &execwirev1.ProcessLimits{Timeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}
		}},
		{"zero timeout without output", "limits.no_output_timeout", withLimits(&execwirev1.ProcessLimits{NoOutputTimeout: seconds(0)})},
		{"negative timeout without output", "limits.no_output_timeout", withLimits(&execwirev1.ProcessLimits{NoOutputTimeout: seconds(-1)})},
		{"limit without a resource", "limits.resource_limits[0].resource", withResourceLimits(&execwirev1.ResourceLimit{Soft: 1})},
		{"limit of an unknown resource", "limits.resource_limits[0].resource", withResourceLimits(&execwirev1.ResourceLimit{Resource: 99, Soft: 1})},
		{"limit of a negative resource", "limits.resource_limits[0].resource", withResourceLimits(&execwirev1.ResourceLimit{Resource: -1, Soft: 1})},
		{"limit given twice", "limits.resource_limits[2].resource", withResourceLimits(
			&execwirev1.ResourceLimit{Resource: openFiles, Soft: 9}, &execwirev1.ResourceLimit{Resource: coreBytes}, &execwirev1.ResourceLimit{Resource: openFiles, Soft: 9})},
		{"soft above hard", "limits.resource_limits[1].hard", withResourceLimits(
			&execwirev1.ResourceLimit{Resource: coreBytes}, &execwirev1.ResourceLimit{Resource: openFiles, Soft: 9, Hard: proto.Uint64(8)})},
		{"nice too high", "limits.nice", withLimits(&execwirev1.ProcessLimits{Nice: proto.Int32(40)})},
		{"nice too low", "limits.nice", withLimits(&execwirev1.ProcessLimits{Nice: proto.Int32(-40)})},
		{"no output kept", "limits.retained_output_bytes", withLimits(&execwirev1.ProcessLimits{RetainedOutputBytes: proto.Uint64(0)})},
		{"little output kept", "limits.retained_output_bytes", withLimits(&execwirev1.ProcessLimits{RetainedOutputBytes: proto.Uint64(64<<10 - 1)})},
		{"unknown inherit", "command.direct.environment_policy.inherit", func(_ *start, d *direct) {
			d.EnvironmentPolicy = &execwirev1.EnvironmentPolicy{Inherit: 9}
		}},
		{"too many patterns", "command.direct.environment_policy.exclude", func(_ *start, d *direct) {
			d.EnvironmentPolicy = &execwirev1.EnvironmentPolicy{Exclude: make([]string, 300)}
		}},
		{"sandbox without a kind", "command.direct.sandbox.policy", func(_ *start, d *direct) { d.Sandbox = &execwirev1.SandboxPolicy{} }},
		{"relative prepared executable", "command.prepared.executable", func(r *start, _ *direct) {
			r.Command = &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{
				Prepared: &execwirev1.PreparedCommand{Executable: "sh", Argv: []string{"sh"}, WorkingDirectory: "/"}}}
		}},
		{"no prepared executable", "command.prepared.executable", func(r *start, _ *direct) {
			r.Command = &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{
				Prepared: &execwirev1.PreparedCommand{Argv: []string{"sh"}, WorkingDirectory: "/"}}}
		}},
		{"empty prepared argv", "command.prepared.argv", func(r *start, _ *direct) {
			r.Command = &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{
				Prepared: &execwirev1.PreparedCommand{Executable: "/bin/sh", WorkingDirectory: "/"}}}
		}},
	}
	f := newFixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.processes.StartProcess(f.ctx, changed(tt.change))
			expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
			if field := violatedField(err); field != tt.field {
				t.Errorf("the violated field is %q, want %q (%v)", field, tt.field, err)
			}
		})
	}
	// No rejected request used the id.
	f.start(shell("p", "true"))
}

func TestStart_MustBeNew_ExistingProcess_Fails(t *testing.T) {
	f := newFixture(t)
	again := func() *execwirev1.StartProcessRequest {
		req := shell("p", "true")
		req.MustBeNew = true
		return req
	}
	f.start(again())
	for name, req := range map[string]*execwirev1.StartProcessRequest{"the same": again(), "without must_be_new": shell("p", "true")} {
		t.Run(name, func(t *testing.T) {
			_, err := f.processes.StartProcess(f.ctx, req)
			expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
		})
	}
}

func TestStart_UnusualEnvironmentNames_ArePassed(t *testing.T) {
	f := newFixture(t)
	req := command("p", "env")
	req.GetCommand().GetDirect().Env = map[string]string{"PATH": "/usr/bin:/bin", "": "nameless", "A=B": "C", "WITH SPACE": ""}
	f.start(req)
	got := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"}).stdout()
	if want := "=nameless\nA=B=C\nPATH=/usr/bin:/bin\nWITH SPACE=\n"; got != want {
		t.Errorf("the child has %q, want %q", got, want)
	}
}

func TestStart_Errors_HaveReason(t *testing.T) {
	directory := t.TempDir()
	tests := []struct {
		name   string
		req    *execwirev1.StartProcessRequest
		code   codes.Code
		reason execwirev1.ErrorReason
	}{
		{"not found", command("p", "no-such-program"), codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND},
		{"not executable", command("p", "/etc/passwd"), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE},
		{"a directory", command("p", directory), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE},
		{"missing directory", changed(func(_ *execwirev1.StartProcessRequest, d *execwirev1.DirectCommand) {
			d.WorkingDirectory = directory + "/none"
		}), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY},
		{"argument too long", command("p", "/bin/true", strings.Repeat("x", 3<<20)), codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG},
		{"sandbox", changed(func(_ *execwirev1.StartProcessRequest, d *execwirev1.DirectCommand) { d.Sandbox = readOnly() }),
			codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE},
		{"managed sandbox without content", changed(func(_ *execwirev1.StartProcessRequest, d *execwirev1.DirectCommand) {
			d.Sandbox = &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{}}
		}), codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	}
	f := newFixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.processes.StartProcess(f.ctx, tt.req)
			expectFailure(t, err, tt.code, tt.reason)
		})
	}
	f.start(shell("p", "true"))
}

func TestCalls_UnknownProcessOrSession_AreNotFound(t *testing.T) {
	f := newFixture(t)
	calls := map[string]func(session, id string) error{
		"GetProcess": func(session, id string) error {
			_, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{SessionId: session, ProcessId: id})
			return err
		},
		"WriteStdin": func(session, id string) error {
			_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{SessionId: session, ProcessId: id})
			return err
		},
		"CloseStdin": func(session, id string) error {
			_, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{SessionId: session, ProcessId: id})
			return err
		},
		"ResizeTerminal": func(session, id string) error {
			_, err := f.processes.ResizeTerminal(f.ctx, &execwirev1.ResizeTerminalRequest{SessionId: session, ProcessId: id,
				Size: &execwirev1.TerminalSize{Rows: 1, Columns: 1}})
			return err
		},
		"SignalProcess": func(session, id string) error {
			_, err := f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{SessionId: session, ProcessId: id, Signal: 1})
			return err
		},
		"TerminateProcess": func(session, id string) error {
			_, err := f.processes.TerminateProcess(f.ctx, &execwirev1.TerminateProcessRequest{SessionId: session, ProcessId: id})
			return err
		},
		"WaitProcess": func(session, id string) error {
			_, err := f.processes.WaitProcess(f.ctx, &execwirev1.WaitProcessRequest{SessionId: session, ProcessId: id})
			return err
		},
		"ReadOutput": func(session, id string) error {
			_, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{SessionId: session, ProcessId: id})
			return err
		},
		"SnapshotOutput": func(session, id string) error {
			_, err := f.processes.SnapshotOutput(f.ctx, &execwirev1.SnapshotOutputRequest{SessionId: session, ProcessId: id})
			return err
		},
		"GetScreen": func(session, id string) error {
			_, err := f.processes.GetScreen(f.ctx, &execwirev1.GetScreenRequest{SessionId: session, ProcessId: id})
			return err
		},
		"WatchScreen": func(session, id string) error {
			stream, err := f.processes.WatchScreen(f.ctx, &execwirev1.WatchScreenRequest{SessionId: session, ProcessId: id})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
		"WatchProcess": func(session, id string) error {
			stream, err := f.processes.WatchProcess(f.ctx, &execwirev1.WatchProcessRequest{SessionId: session, ProcessId: id})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
		"AcknowledgeOutput": func(session, id string) error {
			_, err := f.processes.AcknowledgeOutput(f.ctx, &execwirev1.AcknowledgeOutputRequest{SessionId: session, ProcessId: id, OwnerId: "o"})
			return err
		},
		"DetachProcess": func(session, id string) error {
			_, err := f.processes.DetachProcess(f.ctx, &execwirev1.DetachProcessRequest{SessionId: session, ProcessId: id, OwnerId: "o"})
			return err
		},
		"WriteStdin of an owner": func(session, id string) error {
			_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{SessionId: session, ProcessId: id, OwnerId: "o"})
			return err
		},
		"OwnProcess": func(session, id string) error {
			stream, err := f.processes.OwnProcess(f.ctx, &execwirev1.OwnProcessRequest{Message: &execwirev1.OwnProcessRequest_Resume{
				Resume: &execwirev1.RunResume{SessionId: session, ProcessId: id}}})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
		"RunProcess": func(session, id string) error {
			stream, err := f.processes.RunProcess(f.ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
				Resume: &execwirev1.RunResume{SessionId: session, ProcessId: id}}}); err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			expectFailure(t, call("", "none"), codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
			expectFailure(t, call("none", "none"), codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
			expectFailure(t, call("", ""), codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		})
	}
}

func TestCalls_OversizedRequest_ReportsLimit(t *testing.T) {
	f := newFixture(t)
	f.start(withStdin(command("p", "cat")))
	_, err := f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: bytes.Repeat([]byte("x"), 1<<20+1)})
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_WRITE_TOO_LARGE)
	_, err = f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: bytes.Repeat([]byte("x"), 5<<20)})
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE)
	_, err = f.processes.WriteStdin(f.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", WriteId: strings.Repeat("x", server.MaxWriteIDBytes+1)})
	expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
}

func TestCalls_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	f.start(withTerminal(shell("p", "cat"), 24, 80))
	_, resize := f.processes.ResizeTerminal(f.ctx, &execwirev1.ResizeTerminalRequest{ProcessId: "p"})
	_, rows := f.processes.ResizeTerminal(f.ctx, &execwirev1.ResizeTerminalRequest{ProcessId: "p", Size: &execwirev1.TerminalSize{Columns: 1}})
	_, signal := f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{ProcessId: "p"})
	_, highSignal := f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{ProcessId: "p", Signal: 65})
	_, target := f.processes.SignalProcess(f.ctx, &execwirev1.SignalProcessRequest{ProcessId: "p", Signal: 1, Target: 9})
	_, wait := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: "p", Wait: seconds(-1)})
	_, waitProcess := f.processes.WaitProcess(f.ctx, &execwirev1.WaitProcessRequest{ProcessId: "p", Wait: seconds(-1)})
	_, page := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{PageSize: -1})
	_, terminate := f.processes.TerminateProcess(f.ctx, &execwirev1.TerminateProcessRequest{ProcessId: "p", Termination: &execwirev1.Termination{
		Mode: &execwirev1.Termination_Graceful{Graceful: &execwirev1.GracefulTermination{Timeout: seconds(-1)}}}})
	for field, err := range map[string]error{
		"size": resize, "size.rows": rows, "signal": signal, "target": target,
		"wait": wait, "page_size": page, "termination.graceful.timeout": terminate,
	} {
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(err); got != field {
			t.Errorf("the violated field is %q, want %q", got, field)
		}
	}
	expectFailure(t, highSignal, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	expectFailure(t, waitProcess, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
}

func TestLog_HasReason_OmitsCommand(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, func(s *settings) { s.logger = slog.New(slog.NewTextHandler(&log, nil)) })
	_, err := f.processes.StartProcess(f.ctx, command("p", "very-secret-program"))
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND)
	if !strings.Contains(log.String(), "PROGRAM_NOT_FOUND") || !strings.Contains(log.String(), "StartProcess") {
		t.Errorf("the log has no reason or method: %s", log.String())
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log names the caller's program: %s", log.String())
	}
}

// The start_id distinguishes equal commands under one process id: only a start with the
// same start_id finds the process.
func TestStart_StartID_DistinguishesRetries(t *testing.T) {
	f := newFixture(t)
	request := func(startID string) *execwirev1.StartProcessRequest {
		req := shell("p", "exit 3")
		req.StartId = startID
		return req
	}
	first := f.start(request("one"))
	f.waitClosed("p")
	for _, other := range []string{"two", ""} {
		_, err := f.processes.StartProcess(f.ctx, request(other))
		expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
		if !strings.Contains(err.Error(), "it has ended") {
			t.Errorf("the error does not name the state of the process: %v", err)
		}
	}
	if again := f.start(request("one")); again.GetPid() != first.GetPid() {
		t.Errorf("the retry found process %d, want %d", again.GetPid(), first.GetPid())
	}
	_, err := f.processes.StartProcess(f.ctx, request(strings.Repeat("x", 129)))
	expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	if field := violatedField(err); field != "start_id" {
		t.Errorf("the violated field is %q", field)
	}
}

func TestStart_ReplaceClosed_ReusesID(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.sessions.UnseenRetention, s.sessions.UnseenPerPrincipal = time.Hour, 10 })
	request := func(startID, script string) *execwirev1.StartProcessRequest {
		req := withStdin(shell("p", script))
		req.StartId, req.ReplaceClosed = startID, true
		return req
	}
	f.start(request("one", "read line"))
	_, err := f.processes.StartProcess(f.ctx, request("two", "exit 4"))
	expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
	if !strings.Contains(err.Error(), "it runs") {
		t.Errorf("the error does not name the state of the process: %v", err)
	}
	if _, err := f.processes.CloseStdin(f.ctx, &execwirev1.CloseStdinRequest{ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	f.untilState("p", execwirev1.ProcessState_PROCESS_STATE_CLOSED) // no client has seen its exit

	second := f.start(request("two", "exit 4"))
	if exit := f.waitClosed("p").GetExit(); exit.GetExitCode() != 4 {
		t.Errorf("the second process ended with %v", exit)
	}
	if again := f.start(request("two", "exit 4")); again.GetPid() != second.GetPid() {
		t.Errorf("the retry of the second start found process %d, want %d", again.GetPid(), second.GetPid())
	}

	// A process whose owner may resume is not replaced.
	owner := f.run(request("three", "echo said"))
	owner.until("the end", func() bool { return owner.out.closed != nil })
	owner.cut(context.Canceled)
	_, err = f.processes.StartProcess(f.ctx, request("four", "true"))
	expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
	if !strings.Contains(err.Error(), "its owner has not acknowledged") {
		t.Errorf("the error does not name the state of the process: %v", err)
	}
}
