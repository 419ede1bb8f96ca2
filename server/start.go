package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/recorder"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/tracing"
)

// preparedStart is a validated start of a process.
type preparedStart struct {
	session *session.Session
	id      string
	digest  session.Digest
	spec    process.Spec
	options session.StartOptions
}

// start starts the process, or finds the one that an equal request started.
func (s *processService) start(ctx context.Context, req *execwirev1.StartProcessRequest) (p *session.Process, created bool, err error) {
	start, err := s.prepare(ctx, "", req)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	p, created, err = start.session.Start(ctx, start.id, start.digest, start.spec, start.options)
	if err == nil && created {
		s.noteStart(ctx, began, p)
	}
	return p, created, qualifyField("", req.GetCommand(), err)
}

// noteStart logs and traces a process that was created.
func (s *processService) noteStart(ctx context.Context, began time.Time, p *session.Process) {
	s.logStart(ctx, p)
	s.server.traceProcess(ctx, began, p)
}

// record makes the start record the process that it creates, if that is to be recorded.
func (s *processService) record(ctx context.Context, start *preparedStart) {
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	if !caller.Record || start.spec.Terminal == nil || s.server.cfg.Recorder == nil {
		return
	}
	subject := recorder.Subject{
		Principal: caller.Principal.Name, Session: start.session.ID(), Process: start.id,
		Program: truncate(cmp.Or(start.spec.Executable, start.spec.Argv[0]), maxNameBytes), Size: start.spec.Terminal.WithDefaults(),
	}
	start.options.Prepare = func() (func(*process.Process), error) {
		recording, err := s.server.cfg.Recorder.Create(subject)
		if err != nil {
			return nil, translation{codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_RECORDING_FAILED}.failure(err.Error()).status()
		}
		return func(p *process.Process) {
			if p == nil {
				recording.Cancel()
				return
			}
			recording.Begin(p)
		}, nil
	}
}

// logStart logs that a process was started, without its arguments, which can have secrets.
func (s *processService) logStart(ctx context.Context, p *session.Process) {
	spec, backend, user := p.Spec(), "none", ownUser()
	if spec.User != nil {
		user = spec.User.String()
	}
	if report, confined := p.Sandbox(); confined {
		backend = report.Backend.String()
	}
	s.server.cfg.Logger.InfoContext(ctx, "a process was started", append([]any{"principal", caller(ctx), "session", p.SessionID(),
		"process", p.ID(), "pid", p.PID(), "program", truncate(cmp.Or(spec.Executable, spec.Argv[0]), maxNameBytes), "user", user, "sandbox", backend}, traceFields(ctx)...)...)
}

// traceProcess records the span of a process that a traced call has started: when it was
// executed, its first output and its exit, but nothing of its command and its output.
func (s *Server) traceProcess(ctx context.Context, began time.Time, p *session.Process) {
	span := tracing.FromContext(ctx).Child("process", tracing.Internal, began)
	if span == nil {
		return
	}
	s.traced.Go(func() {
		span.SetString("execwire.process.id", p.ID())
		span.SetInt("process.pid", int64(p.PID()))
		span.Child("process start", tracing.Internal, began).EndAt(p.StartedAt(), false)
		span.Event("exec", p.StartedAt())
		if reader, err := p.Log().NewReader(0); err == nil { // all readers may be in use
			if batch, err := reader.Next(s.watchContext, 1); err == nil && batch.Gap == nil && batch.Events[0].Kind == eventlog.Output {
				span.Event("first byte", time.Unix(0, batch.Events[0].UnixNano))
			}
			reader.Close()
		}
		select {
		case <-p.Closed():
		case <-s.watchContext.Done():
		}
		exit, exited := p.Exit()
		if exited {
			span.Event("exit", exit.ExitedAt)
			span.SetString("execwire.process.cause", strings.ToLower(strings.TrimPrefix(exitCauses[exit.Cause].String(), "EXIT_CAUSE_")))
			if exit.Signal == 0 {
				span.SetInt("process.exit.code", int64(exit.Code))
			} else {
				span.SetString("execwire.process.signal", unix.SignalName(exit.Signal))
			}
		}
		span.End(!exited || exit.Cause != process.CauseExited)
	})
}

// prepare translates a request to start a process. prefix is where the request is in
// its message, for errors.
func (s *processService) prepare(ctx context.Context, prefix string, req *execwirev1.StartProcessRequest) (preparedStart, error) {
	sess, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return preparedStart{}, err
	}
	if err := s.checkRetry(sess, req); err != nil {
		return preparedStart{}, err
	}
	if err := s.checkForm(req.GetCommand()); err != nil {
		return preparedStart{}, err
	}
	user, err := userOf(ctx, prefix, req.GetUser())
	if err != nil {
		return preparedStart{}, err
	}
	spec, err := s.toSpec(req, user)
	if err != nil {
		return preparedStart{}, qualifyField(prefix, req.GetCommand(), err)
	}
	if spec.Sandbox, err = s.sandboxOf(ctx, prefix, req.GetCommand(), spec.Env); err != nil {
		return preparedStart{}, err
	}
	digest, err := digestOf(req)
	if err != nil {
		return preparedStart{}, err
	}
	id := req.GetProcessId()
	if id == "" {
		id = uuid.NewString()
	}
	options := session.StartOptions{Replace: req.GetReplaceClosed(), Keep: req.GetKeep().AsDuration()}
	start := preparedStart{session: sess, id: id, digest: digest, spec: spec, options: options}
	s.record(ctx, &start)
	return start, nil
}

// checkRetry refuses to start what the server before this one may have started.
func (s *processService) checkRetry(sess *session.Session, req *execwirev1.StartProcessRequest) error {
	if req.GetFirstSentAgo().AsDuration() <= time.Since(s.server.began) {
		return nil
	}
	_, err := sess.Process(req.GetProcessId())
	return err
}

// userOf returns the user as whom the caller may start the process; nil is the server's.
func userOf(ctx context.Context, prefix, name string) (*osuser.User, error) {
	if name == "" {
		return nil, nil
	}
	user, err := osuser.Lookup(name)
	if err != nil {
		return nil, invalidField(prefix+"user", fmt.Sprintf("%q %v", name, err))
	}
	caller, _ := ctx.Value(callerKey{}).(auth.Caller)
	if !caller.RunAs.Allows(user) {
		problem := fmt.Sprintf("%q is not in run_as of %v, the principal of the caller: add it in the principals_file of the server, or leave it out", name, caller.Principal)
		return nil, translation{codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_USER_NOT_ALLOWED}.failure(
			prefix+"user "+problem).set("user", name).field(prefix+"user", problem).status()
	}
	return &user, nil
}

// checkForm rejects a disabled form of command.
func (s *processService) checkForm(command *execwirev1.ProcessCommand) error {
	switch {
	case command.GetDirect() != nil && s.server.limits().NoDirect:
		return formDisabled("direct", "allow_direct_exec")
	case command.GetPrepared() != nil && s.server.limits().NoPrepared:
		return formDisabled("prepared", "allow_prepared_exec")
	}
	return nil
}

func formDisabled(form, setting string) error {
	return translation{codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED}.failure(
		"this server starts no "+form+" commands: set "+setting+" to on in its configuration, or use another server").
		set("form", form).set("setting", setting).status()
}

// qualifyField translates the field of an error to its path in the request.
func qualifyField(prefix string, command *execwirev1.ProcessCommand, err error) error {
	var refused *process.Error
	if !errors.As(err, &refused) || refused.Field == "" {
		return err
	}
	named := *refused
	if named.Field == "cwd" {
		named.Field = "working_directory"
	}
	switch member, _, _ := strings.Cut(named.Field, "["); {
	case member == "user":
		named.Field = prefix + named.Field
	case slices.Contains(limitFields, member):
		named.Field = prefix + "limits." + named.Field
	case command.GetDirect() != nil:
		named.Field = prefix + "command.direct." + named.Field
	default:
		named.Field = prefix + "command.prepared." + named.Field
	}
	return &named
}

// digestOf identifies the content of a request. A request that cannot be repeated,
// because it has no id or must be new, gets a digest that equals no other.
// Deterministic encoding is only promised within one build, and that is where
// digests are compared.
func digestOf(req *execwirev1.StartProcessRequest) (session.Digest, error) {
	if req.GetMustBeNew() || req.GetProcessId() == "" {
		var unique session.Digest
		rand.Read(unique[:])
		return unique, nil
	}
	if req.GetSessionId() == session.DefaultID || req.GetFirstSentAgo() != nil {
		req = proto.CloneOf(req)
		req.FirstSentAgo = nil                       // differs in each retry
		if req.GetSessionId() == session.DefaultID { // the same as an empty id
			req.SessionId = ""
		}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return session.Digest{}, err
	}
	return sha256.Sum256(encoded), nil
}

// toSpec translates a validated request, except for its sandbox.
func (s *processService) toSpec(req *execwirev1.StartProcessRequest, user *osuser.User) (process.Spec, error) {
	spec := process.Spec{
		User: user,
		Output: eventlog.Limits{
			RetainedBytes:  int(s.server.limits().GetRetainedOutputBytes()),
			RetainedEvents: int(s.server.limits().GetRetainedEvents()),
			WindowBytes:    int(s.server.limits().GetWindowBytes()),
			SnapshotBytes:  int(s.server.limits().GetSnapshotBytes()),
			MaxReaders:     int(s.server.limits().GetReadersPerProcess()),
		},
		LeaveDescendants: req.GetLeaveDescendants(),
		Labels:           req.GetLabels(),

		PipeStdin: req.GetIo().GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE,
	}
	setLimits(&spec, req.GetLimits())
	if terminal := req.GetIo().GetTerminal(); terminal != nil {
		size := terminal.GetSize()
		spec.Terminal = &process.WindowSize{Rows: uint16(size.GetRows()), Cols: uint16(size.GetColumns())}
	}
	if direct := req.GetCommand().GetDirect(); direct != nil {
		return s.directSpec(spec, direct)
	}
	prepared := req.GetCommand().GetPrepared()
	spec.Executable = prepared.GetExecutable()
	spec.Argv = prepared.GetArgv()
	spec.Cwd = prepared.GetWorkingDirectory()
	spec.Env = process.EnvironmentPolicy{Inherit: process.InheritNone, IgnoreDefaultExcludes: true}.Build(nil, prepared.GetEnv())
	return spec, nil
}

func (s *processService) directSpec(spec process.Spec, direct *execwirev1.DirectCommand) (process.Spec, error) {
	policy := toPolicy(direct.GetEnvironmentPolicy())
	if err := policy.Validate(); err != nil {
		return spec, err
	}
	spec.Argv = direct.GetArgv()
	spec.Arg0 = direct.Arg0
	if spec.Cwd = direct.GetWorkingDirectory(); !path.IsAbs(spec.Cwd) {
		spec.Cwd = path.Join(process.DefaultDirectory(spec.User), spec.Cwd)
	}
	environ := s.server.cfg.Environ
	if spec.User != nil {
		environ = spec.User.Environ(environ)
	}
	spec.Env = policy.Build(environ, direct.GetEnv())
	return spec, nil
}

// sandboxOf returns the confinement of a command: its policy, which only direct
// commands have, and the required one. Nil is unconfined.
func (s *processService) sandboxOf(ctx context.Context, prefix string, command *execwirev1.ProcessCommand, env []string) (*sandbox.Confinement, error) {
	field := prefix + "command.direct.sandbox"
	plan, err := s.server.plan(ctx, field, command.GetDirect().GetSandbox(), sandbox.ResolveOptions{TmpDir: temporaryDirectory(env)})
	if err != nil || plan == nil {
		return nil, err
	}
	return s.server.confine(field, plan)
}

// temporaryDirectory returns TMPDIR of an environment; the first entry counts.
func temporaryDirectory(env []string) string {
	for _, entry := range env {
		if dir, found := strings.CutPrefix(entry, "TMPDIR="); found {
			return dir
		}
	}
	return ""
}

// toPolicy translates an environment policy; an absent one inherits nothing.
func toPolicy(m *execwirev1.EnvironmentPolicy) process.EnvironmentPolicy {
	if m == nil {
		return process.EnvironmentPolicy{Inherit: process.InheritNone, IgnoreDefaultExcludes: true}
	}
	policy := process.EnvironmentPolicy{
		Inherit:               process.InheritCore,
		IgnoreDefaultExcludes: m.GetIgnoreDefaultExcludes(),
		Exclude:               m.GetExclude(),
		Set:                   m.GetSet(),
		IncludeOnly:           m.GetIncludeOnly(),
	}
	switch m.GetInherit() {
	case execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE:
		policy.Inherit = process.InheritNone
	case execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL:
		policy.Inherit = process.InheritAll
	}
	return policy
}

// toTermination translates a termination; absent is graceful.
func toTermination(m *execwirev1.Termination) process.Termination {
	t := process.Termination{Cause: process.CauseTerminated}
	if m.GetForce() != nil {
		return t
	}
	t.Timeout = durationOr(m.GetGraceful().GetTimeout(), process.DefaultGrace)
	t.Graceful = t.Timeout > 0
	return t
}

// durationOr returns the duration, or the default when it is absent.
func durationOr(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}

// resources translates resources.
var resources = map[execwirev1.LimitedResource]process.Resource{
	execwirev1.LimitedResource_LIMITED_RESOURCE_CPU_SECONDS:         process.ResourceCPUSeconds,
	execwirev1.LimitedResource_LIMITED_RESOURCE_FILE_BYTES:          process.ResourceFileBytes,
	execwirev1.LimitedResource_LIMITED_RESOURCE_DATA_BYTES:          process.ResourceDataBytes,
	execwirev1.LimitedResource_LIMITED_RESOURCE_STACK_BYTES:         process.ResourceStackBytes,
	execwirev1.LimitedResource_LIMITED_RESOURCE_CORE_BYTES:          process.ResourceCoreBytes,
	execwirev1.LimitedResource_LIMITED_RESOURCE_USER_PROCESSES:      process.ResourceUserProcesses,
	execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES:          process.ResourceOpenFiles,
	execwirev1.LimitedResource_LIMITED_RESOURCE_LOCKED_BYTES:        process.ResourceLockedBytes,
	execwirev1.LimitedResource_LIMITED_RESOURCE_ADDRESS_SPACE_BYTES: process.ResourceAddressSpaceBytes,
}

// setLimits copies the limits of a validated request to a spec.
func setLimits(spec *process.Spec, m *execwirev1.ProcessLimits) {
	if m == nil {
		return
	}
	spec.Timeout = m.GetTimeout().AsDuration()
	spec.NoOutputTimeout = m.GetNoOutputTimeout().AsDuration()
	spec.Nice = int(m.GetNice())
	for _, limit := range m.GetResourceLimits() {
		hard := limit.GetSoft()
		if limit.Hard != nil {
			hard = limit.GetHard()
		}
		spec.ResourceLimits = append(spec.ResourceLimits,
			process.Limit{Resource: resources[limit.GetResource()], Soft: limit.GetSoft(), Hard: hard})
	}
	if m.RetainedOutputBytes != nil {
		spec.Output.RetainedBytes = int(min(uint64(spec.Output.RetainedBytes), m.GetRetainedOutputBytes()))
	}
}

// limitFields are the fields of a spec that a request has in its limits.
var limitFields = []string{"timeout", "no_output_timeout", "resource_limits", "nice"}
