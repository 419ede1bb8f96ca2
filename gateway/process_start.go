package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// startParams are the parameters of process/start. What newer clients send
// besides (metadata, shellSnapshot, credentialProviders) is accepted and changes
// nothing.
type startParams struct {
	ProcessID             string            `param:"processId"`
	Argv                  []string          `param:"argv"`
	Cwd                   string            `param:"cwd"`
	Env                   map[string]string `param:"env"`
	Tty                   bool              `param:"tty"`
	PipeStdin             bool              `param:"pipeStdin,optional"`
	Arg0                  *string           `param:"arg0,optional"`
	EnvPolicy             *envPolicyParams  `param:"envPolicy,optional"`
	Sandbox               json.RawMessage   `param:"sandbox,optional"`
	EnforceManagedNetwork *bool             `param:"enforceManagedNetwork,optional"`
	ManagedNetwork        json.RawMessage   `param:"managedNetwork,optional"`
	Rows                  *uint16           `param:"rows,named"`
	Cols                  *uint16           `param:"cols,named"`
	Executable            *string           `param:"executable,named"`
	Policy                json.RawMessage   `param:"sandboxPolicy,optional,named"`
	NetworkProxy          json.RawMessage   `param:"networkProxy,optional,named"`
	LeaveDescendants      *bool             `param:"leaveDescendants,named"`
	TimeoutMs             *uint64           `param:"timeoutMs,named"`
	NoOutputTimeoutMs     *uint64           `param:"noOutputTimeoutMs,named"`

	cwd        clientPath
	executable clientPath                // of a prepared command
	policy     *execwirev1.SandboxPolicy // nil: none was asked for
	size       *execwirev1.TerminalSize  // nil: the standard one
	manner     manner
}

type envPolicyParams struct {
	Inherit               envInherit        `param:"inherit"`
	IgnoreDefaultExcludes bool              `param:"ignoreDefaultExcludes"`
	Exclude               []string          `param:"exclude"`
	Set                   map[string]string `param:"set"`
	IncludeOnly           []string          `param:"includeOnly"`
}

// envInherit is what of the core's environment a policy begins with.
type envInherit execwirev1.EnvironmentInherit

func (i *envInherit) UnmarshalText(text []byte) error {
	switch string(text) {
	case "core":
		*i = envInherit(execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE)
	case "all":
		*i = envInherit(execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL)
	case "none":
		*i = envInherit(execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE)
	default:
		return unknownVariant(text, "one of `core`, `all`, `none`")
	}
	return nil
}

func unknownVariant(text []byte, expected string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown variant `%s`, expected %s", shorten(string(text)), expected)
}

// startResult is the result of process/start.
type startResult struct {
	ProcessID   string `json:"processId"`
	SandboxType string `json:"sandboxType"`
	// PID and StartedAtMs are for clients that acknowledge.
	PID         int32 `json:"pid,omitempty"`
	StartedAtMs int64 `json:"startedAtMs,omitempty"`
}

func (p *startParams) order() (string, place) { return p.ProcessID, placeStart }

// check refuses what the core would refuse with other words, or would not.
func (p *startParams) check() *jsonrpc.Error {
	if err := checkProcessID(p.ProcessID); err != nil {
		return err
	}
	cwd, err := parsePath("cwd", p.Cwd)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", err.Message)
	}
	p.cwd = cwd
	if err := p.checkSize(); err != nil {
		return err
	}
	if err := p.checkPrepared(); err != nil {
		return err
	}
	if err := p.readSandbox(); err != nil {
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
	id := coreProcessID(p.ProcessID)
	r.hold(id, false, 0)
	started, err := r.processes.StartProcess(ctx, &execwirev1.StartProcessRequest{
		SessionId:        r.session.id,
		ProcessId:        id,
		Command:          p.command(r),
		Io:               p.io(),
		LeaveDescendants: p.LeaveDescendants == nil || *p.LeaveDescendants,
		MustBeNew:        true,
		Limits:           p.limits(),
		Labels:           p.manner.labels(),
	})
	if err != nil {
		failed := p.failure(err)
		p.announceFailed(r, err, failed)
		return nil, failed
	}
	r.renew(id, p.manner)
	p.announceStarted(r, started.GetProcess())
	result := startResult{ProcessID: p.ProcessID, SandboxType: sandboxType(started.GetProcess())}
	if r.acknowledges {
		result.PID, result.StartedAtMs = started.GetProcess().GetPid(), started.GetProcess().GetStartTime().AsTime().UnixMilli()
	}
	return result, nil
}

// renew notes that what comes under the id with seq 1 is another process.
func (c *connection) renew(id string, m manner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record(id).renewed = &m
}

// limits are those of a process of which less is kept than of others, or that may
// take so long.
func (p *startParams) limits() *execwirev1.ProcessLimits {
	if p.manner.window == 0 && p.TimeoutMs == nil && p.NoOutputTimeoutMs == nil {
		return nil
	}
	limits := &execwirev1.ProcessLimits{}
	if p.manner.window > 0 {
		limits.RetainedOutputBytes = proto.Uint64(uint64(p.manner.window))
	}
	if p.TimeoutMs != nil {
		limits.Timeout = durationpb.New(milliseconds(*p.TimeoutMs))
	}
	if p.NoOutputTimeoutMs != nil {
		limits.NoOutputTimeout = durationpb.New(milliseconds(*p.NoOutputTimeoutMs))
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
		WorkingDirectory: p.cwd.native,
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

// shellVariable is what a process with a terminal gets when it was not given.
const shellVariable = "SHELL"

// io connects the process: a terminal, a pipe, or nothing to read.
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

// failure says why a start failed in the words that clients know: those of the
// operating system.
func (p *startParams) failure(err error) *jsonrpc.Error {
	if exceeded := tooManyProcesses(err); exceeded != nil {
		return exceeded
	}
	text := osErrorText(coreInfo(err).GetMetadata()["errno"])
	if text == "" {
		text = startErrors[reasonOf(err)]
	}
	if text == "" {
		return processFailure(p.ProcessID, err)
	}
	return failureWith(err, text)
}

// startErrors are what clients know failures of a start by of which the core did
// not say what the operating system said.
var startErrors = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:      osErrorText("ENOENT"),
	execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE: osErrorText("EACCES"),
	execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY:  osErrorText("ENOENT"),
	execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:      osErrorText("EACCES"),
	execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG: osErrorText("E2BIG"),
}
