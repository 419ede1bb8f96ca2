package execserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

type startResult struct {
	SandboxType string `param:"sandboxType,optional,nullable"`
	PID         *int32 `param:"pid"`
	StartedAtMs *int64 `param:"startedAtMs"`
}

// StartProcess implements the RPC. The process has no owner: what it says is
// dropped here, and the server keeps the end of it.
func (s *processService) StartProcess(ctx context.Context, r *execwirev1.StartProcessRequest) (*execwirev1.StartProcessResponse, error) {
	p, _, err := s.start(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return &execwirev1.StartProcessResponse{Process: p.describe()}, nil
}

// start starts a process, or finds the one that the same request started before.
// begin, if there is one, is called before the request is sent, because what the
// process says can come before the answer.
func (s *processService) start(ctx context.Context, r *execwirev1.StartProcessRequest, begin func(*process)) (p *process, resumed bool, err error) {
	if err := s.checkSession(r.GetSessionId()); err != nil {
		return nil, false, err
	}
	params, err := s.conn.startParams(ctx, r)
	if err != nil {
		return nil, false, err
	}
	if params.ProcessID == "" {
		params.ProcessID = uuid.NewString()
	}
	digest, err := digestOf(r)
	if err != nil {
		return nil, false, err
	}
	p, isNew := s.conn.processes.put(params.ProcessID, digest, params.Tty)
	if !isNew && (p.digest != digest || r.GetMustBeNew()) {
		return nil, false, processExists(params.ProcessID)
	}
	if err := p.enterStart(ctx); err != nil {
		return nil, false, err
	}
	defer p.leaveStart()
	if p.isStarted() {
		return p, true, nil
	}
	if begin != nil {
		begin(p)
	}
	return p, false, s.startOnce(ctx, p, r, params)
}

// startOnce asks for the start. A process whose start was not answered stays
// known: it may run.
func (s *processService) startOnce(ctx context.Context, p *process, r *execwirev1.StartProcessRequest, params *startParams) error {
	p.prepare(s.conn.sessionID(), r)
	repeated := p.attempted()
	var result startResult
	err := s.conn.call(ctx, "process/start", params, &result)
	switch {
	case err == nil:
	case repeated && reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		// It was started by the attempt that was not answered.
	case isUnanswered(err):
		return err
	default:
		s.conn.processes.drop(p)
		return startFailure(params, s.withDirectory(ctx, params, err))
	}
	if params.mustConfine && err == nil && (result.SandboxType == "" || result.SandboxType == "none") {
		return s.refuseUnconfined(ctx, p)
	}
	p.started(params.mustConfine, &result)
	return nil
}

// withDirectory tells a missing directory from a missing program, of which servers of
// the reference say the same.
func (s *processService) withDirectory(ctx context.Context, params *startParams, err error) error {
	if s.conn.features().execwire || reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND {
		return err
	}
	missing := s.conn.call(ctx, "fs/getMetadata", map[string]string{"path": params.Cwd}, nil)
	if reasonOf(missing) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		return err
	}
	return statusWith(execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
		"the working directory does not exist: "+status.Convert(err).Message(), map[string]string{"errno": "ENOENT"})
}

// refuseUnconfined ends a process that runs without the sandbox that was asked for.
func (s *processService) refuseUnconfined(ctx context.Context, p *process) error {
	err := s.conn.control(context.WithoutCancel(ctx), "process/terminate", map[string]string{"processId": p.id}, nil)
	if err != nil {
		return err
	}
	s.conn.processes.drop(p)
	return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
		"the server started the process without the sandbox that was asked for; it was terminated")
}

// isUnanswered reports whether the server may have done what failed with err.
func isUnanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return false
}

func processExists(id string) error {
	return statusWith(execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS, "process "+id+" already exists", nil)
}

// digestOf tells requests apart.
func digestOf(r *execwirev1.StartProcessRequest) ([sha256.Size]byte, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return [sha256.Size]byte{}, status.Errorf(codes.InvalidArgument, "the request cannot be encoded: %v", err)
	}
	return sha256.Sum256(text), nil
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

// startFailure is what a start failed with, by the fields of the request.
func startFailure(params *startParams, err error) error {
	if params.Executable == "" && len(params.Argv) == 0 && status.Code(err) == codes.InvalidArgument {
		return invalidField("command.direct.argv", "must not be empty")
	}
	return err
}
