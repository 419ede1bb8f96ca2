package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// startParams is the parameters of process/start. Other members that newer clients send
// (metadata, shellSnapshot, credentialProviders) have no effect.
type startParams struct {
	onProcess
	Argv      []string          `param:"argv"`
	Cwd       string            `param:"cwd"`
	Env       map[string]string `param:"env"`
	Tty       bool              `param:"tty"`
	PipeStdin bool              `param:"pipeStdin,optional"`
	Arg0      *string           `param:"arg0,optional"`
	EnvPolicy *envPolicyParams  `param:"envPolicy,optional"`
	confinedParams
	Rows              *uint16 `param:"rows,named"`
	Cols              *uint16 `param:"cols,named"`
	Executable        *string `param:"executable,named"`
	LeaveDescendants  *bool   `param:"leaveDescendants,named"`
	TimeoutMs         *uint64 `param:"timeoutMs,named"`
	NoOutputTimeoutMs *uint64 `param:"noOutputTimeoutMs,named"`

	cwd        param.Path
	executable param.Path                // of a prepared command
	policy     *execwirev1.SandboxPolicy // nil without a sandbox
	size       *execwirev1.TerminalSize  // nil is the default
	mode       processMode
}

type envPolicyParams struct {
	Inherit               envInherit        `param:"inherit"`
	IgnoreDefaultExcludes bool              `param:"ignoreDefaultExcludes"`
	Exclude               []string          `param:"exclude"`
	Set                   map[string]string `param:"set"`
	IncludeOnly           []string          `param:"includeOnly"`
}

// envInherit selects the server's variables that an environment policy begins with.
type envInherit execwirev1.EnvironmentInherit

func (i *envInherit) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.EnvironmentInherit)(i), text, []string{"core", "all", "none"},
		execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE, execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL, execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE)
}

// startResult is the result of process/start.
type startResult struct {
	ProcessID   processID `json:"processId"`
	SandboxType string    `json:"sandboxType"`
}

func (p *startParams) order() (processID, orderKind) { return p.ProcessID, orderStart }

// check validates what the server would accept, or reject with another text than the
// reference's.
func (p *startParams) Check() *jsonrpc.Error {
	cwd, err := param.ParsePath("cwd", p.Cwd)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", err.Message)
	}
	p.cwd = cwd
	if p.size, err = newTerminalSize(p.Tty, p.Rows, p.Cols); err != nil {
		return err
	}
	if err := p.checkPrepared(); err != nil {
		return err
	}
	if p.policy, err = p.confinedParams.parse(cwd); err != nil {
		return err
	}
	switch {
	case len(p.Argv) == 0:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "argv must not be empty")
	case p.Argv[0] == "" && !p.isPrepared():
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "missing program for pipe spawn")
	case p.hasNUL():
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "nul byte found in provided data")
	}
	return nil
}

func (p *startParams) hasNUL() bool {
	in := func(text string) bool { return strings.IndexByte(text, 0) >= 0 }
	if slices.ContainsFunc(p.Argv, in) || p.Arg0 != nil && in(*p.Arg0) {
		return true
	}
	environments := []map[string]string{p.Env}
	if p.EnvPolicy != nil {
		environments = append(environments, p.EnvPolicy.Set)
	}
	for _, environment := range environments {
		for name, value := range environment {
			if in(name) || in(value) {
				return true
			}
		}
	}
	return false
}

// run starts the process. Its events follow the answer.
func (p *startParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	id := p.ProcessID.server()
	r.gateOutput(id, 0)
	started, err := r.processes.StartProcess(ctx, &execwirev1.StartProcessRequest{
		SessionId:        r.session.id,
		ProcessId:        id,
		Command:          p.command(r),
		Io:               p.io(),
		LeaveDescendants: p.LeaveDescendants == nil || *p.LeaveDescendants,
		MustBeNew:        true,
		Limits:           p.limits(),
		Labels:           p.mode.labels(),
	})
	if err != nil {
		failed := p.failure(err)
		p.announceFailed(r, err, failed)
		return nil, failed
	}
	r.table.renew(id, p.mode, r.trace)
	p.announceStarted(r, started.GetProcess())
	return startResult{ProcessID: p.ProcessID, SandboxType: sandboxType(started.GetProcess())}, nil
}

// announceStarted sends after the answer that the process runs.
func (p *startParams) announceStarted(r *request, started *execwirev1.Process) {
	if p.mode.legacy || !r.isSubscribed(notifyStarted) {
		return
	}
	r.follows = jsonrpc.AppendNotification(nil, notifyStarted, startedParams{
		ProcessID: p.ProcessID, PID: started.GetPid(), StartedAtMs: started.GetStartTime().AsTime().UnixMilli()})
}

// announceFailed sends after the answer that the start failed. If the id is in use, its
// process has not failed.
func (p *startParams) announceFailed(r *request, err error, failed *jsonrpc.Error) {
	taken := errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS
	if p.mode.legacy || taken || !r.isSubscribed(notifyFailed) {
		return
	}
	r.follows = appendFailed(nil, p.ProcessID, failed)
}

// limits returns limits of retained output and of time, if the client set any.
func (p *startParams) limits() *execwirev1.ProcessLimits {
	if p.mode.window == 0 && p.TimeoutMs == nil && p.NoOutputTimeoutMs == nil {
		return nil
	}
	limits := &execwirev1.ProcessLimits{}
	if p.mode.window > 0 {
		limits.RetainedOutputBytes = proto.Uint64(uint64(p.mode.window))
	}
	if p.TimeoutMs != nil {
		limits.Timeout = durationpb.New(param.Milliseconds(*p.TimeoutMs))
	}
	if p.NoOutputTimeoutMs != nil {
		limits.NoOutputTimeout = durationpb.New(param.Milliseconds(*p.NoOutputTimeoutMs))
	}
	return limits
}

func (p *startParams) command(r *request) *execwirev1.ProcessCommand {
	if p.isPrepared() {
		return p.prepared()
	}
	return &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: p.direct(r)}}
}

func (p *startParams) direct(r *request) *execwirev1.DirectCommand {
	command := &execwirev1.DirectCommand{
		Argv:             p.Argv,
		Arg0:             p.Arg0,
		WorkingDirectory: p.cwd.Native,
		Env:              p.Env,
		Sandbox:          p.policy,
	}
	if policy := p.EnvPolicy; policy != nil {
		command.EnvironmentPolicy = &execwirev1.EnvironmentPolicy{
			Inherit:               execwirev1.EnvironmentInherit(policy.Inherit),
			IgnoreDefaultExcludes: policy.IgnoreDefaultExcludes,
			Exclude:               policy.Exclude,
			Set:                   policy.Set,
			IncludeOnly:           policy.IncludeOnly,
		}
	}
	if _, given := p.Env[shellVariable]; p.Tty && !given {
		command.Env = maps.Clone(p.Env)
		command.Env[shellVariable] = r.environment.native.GetShell()
	}
	return command
}

// shellVariable is added to the environment of a process with a terminal.
const shellVariable = "SHELL"

// io returns the process's stdin and terminal.
func (p *startParams) io() *execwirev1.ProcessIo {
	if p.Tty {
		return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{Size: p.size}}}
	}
	stdin := execwirev1.StdinMode_STDIN_MODE_CLOSED
	if p.PipeStdin {
		stdin = execwirev1.StdinMode_STDIN_MODE_PIPE
	}
	return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: stdin}}}
}

// failure converts an error of a start, with the operating system's text where it is
// known.
func (p *startParams) failure(err error) *jsonrpc.Error {
	if exceeded := tooManyProcesses(err); exceeded != nil {
		return exceeded
	}
	text := cmp.Or(rpcerror.OSText(errorinfo.Of(err).GetMetadata()["errno"]), startErrors[errorinfo.Reason(err)])
	if text == "" {
		return processError(p.ProcessID, err)
	}
	return rpcerror.WithText(err, text)
}

// startErrors are the reference's texts for start errors without an operating system
// error.
var startErrors = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:      rpcerror.OSText("ENOENT"),
	execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE: rpcerror.OSText("EACCES"),
	execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY:  rpcerror.OSText("ENOENT"),
	execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:      rpcerror.OSText("EACCES"),
	execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG: rpcerror.OSText("E2BIG"),
}

// isPrepared reports whether the client resolved the command: it names the executable.
func (p *startParams) isPrepared() bool { return p.Executable != nil }

// checkPrepared rejects members that would make the server resolve a prepared command.
func (p *startParams) checkPrepared() *jsonrpc.Error {
	if !p.isPrepared() {
		return nil
	}
	executable, err := param.ParsePath("executable", *p.Executable)
	if err != nil {
		return param.Invalid("executable", "is not an absolute path: "+err.Message)
	}
	if !executable.URI {
		executable.Native = *p.Executable // not cleaned
	}
	p.executable = executable
	for _, beside := range []struct {
		name    string
		isGiven bool
	}{
		{"arg0", p.Arg0 != nil},
		{"envPolicy", p.EnvPolicy != nil},
		{"sandbox", param.IsGiven(p.Sandbox)},
		{"sandboxPolicy", param.IsGiven(p.Policy)},
		{"networkProxy", param.IsGiven(p.NetworkProxy)},
		{"managedNetwork", param.IsGiven(p.ManagedNetwork)},
		{"enforceManagedNetwork", p.EnforceManagedNetwork != nil},
	} {
		if beside.isGiven {
			return param.Invalid(beside.name, "is not for an `executable`, which is executed exactly as it is given: leave one of them out")
		}
	}
	return nil
}

// prepared returns the command as the client resolved it.
func (p *startParams) prepared() *execwirev1.ProcessCommand {
	return &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{Prepared: &execwirev1.PreparedCommand{
		Executable:       p.executable.Native,
		Argv:             p.Argv,
		WorkingDirectory: p.cwd.Native,
		Env:              p.Env,
	}}}
}

// tooManyProcesses converts the error for the limit of processes that the gateway set
// for the session; nil for other errors.
func tooManyProcesses(err error) *jsonrpc.Error {
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES || !rpcerror.ExceedsQuota(err, "max_processes") {
		return nil
	}
	const setting = "max_processes_per_connection"
	limit := errorinfo.Of(err).GetMetadata()["limit"]
	failure := rpcerror.WithText(err, "too many processes of this connection run: at most "+limit+" may ("+setting+")")
	failure.Data = map[string]any{"reason": errorinfo.Of(err).GetReason(), "setting": setting, "limit": limit,
		rpcerror.RetryMember: rpcerror.RetryWhenFull.Milliseconds()}
	return failure
}
