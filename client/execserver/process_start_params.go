package execserver

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// startParams are the parameters of process/start.
type startParams struct {
	ProcessID  string            `json:"processId"`
	Argv       []string          `json:"argv"`
	Cwd        string            `json:"cwd"`
	Env        map[string]string `json:"env"`
	Tty        bool              `json:"tty"`
	Rows       uint32            `json:"rows,omitempty"`
	Cols       uint32            `json:"cols,omitempty"`
	PipeStdin  bool              `json:"pipeStdin"`
	Arg0       *string           `json:"arg0,omitempty"`
	Executable string            `json:"executable,omitempty"`
	EnvPolicy  *envPolicy        `json:"envPolicy,omitempty"`
	Sandbox    *wireSandbox      `json:"sandbox,omitempty"`

	// For servers that tell of processes exactly.
	LeaveDescendants  *bool  `json:"leaveDescendants,omitempty"`
	TimeoutMs         *int64 `json:"timeoutMs,omitempty"`
	NoOutputTimeoutMs *int64 `json:"noOutputTimeoutMs,omitempty"`

	mustConfine bool
}

type envPolicy struct {
	Inherit               string            `json:"inherit"`
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// startParams writes a request as the protocol has it, and refuses what it has no
// words for.
func (c *Conn) startParams(ctx context.Context, r *execwirev1.StartProcessRequest) (*startParams, error) {
	if _, err := c.current(ctx); err != nil {
		return nil, err
	}
	p := &startParams{ProcessID: r.GetProcessId()}
	if size := r.GetIo().GetTerminal().GetSize(); size != nil {
		if err := checkSize("io.terminal.size", size); err != nil {
			return nil, err
		}
	}
	if err := c.checkStart(r); err != nil {
		return nil, err
	}
	p.connect(r.GetIo())
	p.limit(c, r)
	var err error
	switch command := r.GetCommand().GetCommand().(type) {
	case *execwirev1.ProcessCommand_Direct:
		err = p.direct(ctx, c, command.Direct)
	case *execwirev1.ProcessCommand_Prepared:
		err = p.prepared(ctx, c, command.Prepared)
	default:
		err = invalidField("command", "has no form: set direct or prepared")
	}
	if err != nil {
		return nil, err
	}
	return p, p.checkText()
}

// checkStart refuses what this server cannot be asked for.
func (c *Conn) checkStart(r *execwirev1.StartProcessRequest) error {
	limits := r.GetLimits()
	timed := &execwirev1.ProcessLimits{Timeout: limits.GetTimeout(), NoOutputTimeout: limits.GetNoOutputTimeout()}
	switch {
	case proto.Size(limits) > proto.Size(timed):
		return notInProtocol("limits of a process other than its timeouts")
	case proto.Size(timed) > 0 && !c.features().acknowledges:
		return notInProtocol("a timeout of a process")
	case r.GetIo().GetTerminal().GetSize() != nil && !c.features().execwire:
		return notInProtocol("the size of a terminal")
	case r.GetCommand().GetPrepared() != nil && !c.features().execwire:
		return notInProtocol("a prepared command")
	}
	return nil
}

// checkSize refuses a size that no terminal has.
func checkSize(field string, size *execwirev1.TerminalSize) error {
	for _, member := range []struct {
		name  string
		value uint32
	}{{"rows", size.GetRows()}, {"columns", size.GetColumns()}} {
		if member.value < 1 || member.value > 65535 {
			return invalidField(field+"."+member.name, fmt.Sprintf("is %d: use 1 to 65535", member.value))
		}
	}
	return nil
}

// notInProtocol refuses what this server cannot be asked for.
func notInProtocol(what string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
		"%s cannot be asked for over the exec-server protocol as this server speaks it: leave it out, or reach the server over gRPC", what)
}

// limit says how long the process may take, and what becomes of what it leaves
// behind. Servers of the reference leave that alone.
func (p *startParams) limit(c *Conn, r *execwirev1.StartProcessRequest) {
	if !c.features().acknowledges {
		return
	}
	leave := r.GetLeaveDescendants()
	p.LeaveDescendants = &leave
	p.TimeoutMs = milliseconds(r.GetLimits().GetTimeout())
	p.NoOutputTimeoutMs = milliseconds(r.GetLimits().GetNoOutputTimeout())
}

// milliseconds is a time in whole ones, at least one if it is any; nil for none.
func milliseconds(d *durationpb.Duration) *int64 {
	if d == nil {
		return nil
	}
	n := max(d.AsDuration(), 0)
	ms := int64((n + time.Millisecond - 1) / time.Millisecond)
	return &ms
}

// connect says how the descriptors are connected.
func (p *startParams) connect(io *execwirev1.ProcessIo) {
	if terminal := io.GetTerminal(); terminal != nil {
		p.Tty = true
		p.Rows, p.Cols = terminal.GetSize().GetRows(), terminal.GetSize().GetColumns()
		return
	}
	p.PipeStdin = io.GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE
}

func (p *startParams) direct(ctx context.Context, c *Conn, command *execwirev1.DirectCommand) (err error) {
	p.Argv, p.Arg0, p.Env = command.GetArgv(), command.Arg0, orEmpty(command.GetEnv())
	if p.Cwd, err = c.wirePath(ctx, "command.direct.working_directory", command.GetWorkingDirectory()); err != nil {
		return err
	}
	if policy := command.GetEnvironmentPolicy(); policy != nil {
		p.EnvPolicy = &envPolicy{
			Inherit: inherits[policy.GetInherit()], IgnoreDefaultExcludes: policy.GetIgnoreDefaultExcludes(),
			Exclude: orEmptyList(policy.GetExclude()), Set: orEmpty(policy.GetSet()), IncludeOnly: orEmptyList(policy.GetIncludeOnly())}
		if p.EnvPolicy.Inherit == "" {
			return invalidField("command.direct.environment_policy.inherit", "is not known")
		}
	}
	const field = "command.direct.sandbox"
	if p.Sandbox, err = c.sandbox(ctx, field, command.GetSandbox(), command.GetWorkingDirectory()); err != nil {
		return err
	}
	managed := command.GetSandbox().GetManaged()
	p.mustConfine = managed.GetFileSystem().GetRestricted() != nil ||
		managed != nil && managed.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	if p.mustConfine && !c.features().uris {
		return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
			"this server does not confine processes; nothing was done")
	}
	return nil
}

func (p *startParams) prepared(ctx context.Context, c *Conn, command *execwirev1.PreparedCommand) (err error) {
	p.Argv, p.Env = command.GetArgv(), orEmpty(command.GetEnv())
	if p.Cwd, err = c.wirePath(ctx, "command.prepared.working_directory", command.GetWorkingDirectory()); err != nil {
		return err
	}
	p.Executable, err = c.wirePath(ctx, "command.prepared.executable", command.GetExecutable())
	return err
}

var inherits = map[execwirev1.EnvironmentInherit]string{
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_UNSPECIFIED: "core",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE:        "core",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL:         "all",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE:        "none",
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func orEmptyList(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// checkText refuses what JSON cannot carry as it is.
func (p *startParams) checkText() error {
	if !utf8.ValidString(p.ProcessID) {
		return invalidField("process_id", "is not UTF-8")
	}
	texts := append([]string{}, p.Argv...)
	if p.Arg0 != nil {
		texts = append(texts, *p.Arg0)
	}
	environments := []map[string]string{p.Env}
	if p.EnvPolicy != nil {
		texts = append(append(texts, p.EnvPolicy.Exclude...), p.EnvPolicy.IncludeOnly...)
		environments = append(environments, p.EnvPolicy.Set)
	}
	for _, environment := range environments {
		for name, value := range environment {
			texts = append(texts, name, value)
		}
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return invalidField("command", "has text that is not UTF-8, which the exec-server protocol cannot carry")
		}
	}
	return nil
}
