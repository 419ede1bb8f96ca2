package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/session"
)

// starting is a start of a process that can be made.
type starting struct {
	session *session.Session
	id      string
	digest  session.Digest
	spec    process.Spec
}

// start starts the process, or finds the one that the same request started.
func (s *Server) start(ctx context.Context, req *execwirev1.StartProcessRequest) (p *session.Process, created bool, err error) {
	start, err := s.prepare(ctx, "", req)
	if err != nil {
		return nil, false, err
	}
	p, created, err = start.session.Start(ctx, start.id, start.digest, start.spec)
	return p, created, nameField("", req.GetCommand(), err)
}

// prepare translates a request to start a process. The prefix is where the
// request is in its message, for errors.
func (s *Server) prepare(ctx context.Context, prefix string, req *execwirev1.StartProcessRequest) (starting, error) {
	sess, err := s.open(ctx, req.GetSessionId())
	if err != nil {
		return starting{}, err
	}
	if err := s.checkForm(req.GetCommand()); err != nil {
		return starting{}, err
	}
	spec, err := s.toSpec(req)
	if err != nil {
		return starting{}, nameField(prefix, req.GetCommand(), err)
	}
	if spec.Sandbox, err = s.sandboxOf(ctx, prefix, req.GetCommand(), spec.Env); err != nil {
		return starting{}, err
	}
	digest, err := digestOf(req)
	if err != nil {
		return starting{}, err
	}
	if req.GetMustBeNew() {
		rand.Read(digest[:]) // equal to no other, not even to that of the same request
	}
	id := req.GetProcessId()
	if id == "" {
		id = uuid.NewString()
	}
	if req.GetReplaceClosed() {
		sess.RemoveClosed(id, digest)
	}
	return starting{session: sess, id: id, digest: digest, spec: spec}, nil
}

// checkForm refuses a form of command that is switched off.
func (s *Server) checkForm(command *execwirev1.ProcessCommand) error {
	switch {
	case command.GetDirect() != nil && s.cfg.NoDirect:
		return formDisabled("direct", "allow_direct_exec")
	case command.GetPrepared() != nil && s.cfg.NoPrepared:
		return formDisabled("prepared", "allow_prepared_exec")
	}
	return nil
}

func formDisabled(form, setting string) error {
	return failure(codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED,
		map[string]string{"form": form, "setting": setting},
		"this server starts no "+form+" commands: set "+setting+" to on in its configuration, or use another server")
}

// nameField gives the part of a request that an error is about the name that it
// has there.
func nameField(prefix string, command *execwirev1.ProcessCommand, err error) error {
	var refused *process.Error
	if !errors.As(err, &refused) || refused.Field == "" {
		return err
	}
	named := *refused
	if named.Field == "cwd" {
		named.Field = "working_directory"
	}
	switch member, _, _ := strings.Cut(named.Field, "["); {
	case slices.Contains(limitFields, member):
		named.Field = prefix + "limits." + named.Field
	case command.GetDirect() != nil:
		named.Field = prefix + "command.direct." + named.Field
	default:
		named.Field = prefix + "command.prepared." + named.Field
	}
	return &named
}

// digestOf identifies the content of a request. Deterministic encoding is only
// promised within one build, and that is where digests are compared.
func digestOf(req *execwirev1.StartProcessRequest) (session.Digest, error) {
	if req.GetSessionId() == session.DefaultID { // by its name or by none
		req = proto.CloneOf(req)
		req.SessionId = ""
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return session.Digest{}, err
	}
	return sha256.Sum256(encoded), nil
}

// toSpec translates a request that passed validation, but for its sandbox.
func (s *Server) toSpec(req *execwirev1.StartProcessRequest) (process.Spec, error) {
	spec := process.Spec{
		Output: eventlog.Limits{
			RetainedBytes:  s.cfg.Limits.RetainedOutput,
			RetainedEvents: s.cfg.Limits.RetainedEvents,
			WindowBytes:    s.cfg.Limits.Window,
			SnapshotBytes:  s.cfg.Limits.Snapshot,
			MaxReaders:     s.cfg.Limits.Readers,
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

func (s *Server) directSpec(spec process.Spec, direct *execwirev1.DirectCommand) (process.Spec, error) {
	policy := toPolicy(direct.GetEnvironmentPolicy())
	if err := policy.Validate(); err != nil {
		return spec, err
	}
	spec.Argv = direct.GetArgv()
	spec.Arg0 = direct.Arg0
	spec.Cwd = direct.GetWorkingDirectory()
	spec.Env = policy.Build(s.cfg.Environ, direct.GetEnv())
	return spec, nil
}

// sandboxOf chooses what confines a command: the policy that it asks for, which only
// direct ones can, and the one that the server requires. Nil: nothing does.
func (s *Server) sandboxOf(ctx context.Context, prefix string, command *execwirev1.ProcessCommand, env []string) (*sandbox.Confinement, error) {
	field := prefix + "command.direct.sandbox"
	plan, err := s.plan(ctx, field, command.GetDirect().GetSandbox(), sandbox.Surroundings{TmpDir: temporaryDirectory(env)})
	if err != nil || plan == nil {
		return nil, err
	}
	return s.confine(field, plan)
}

// temporaryDirectory is what programs find in an environment: the first of the
// entries.
func temporaryDirectory(env []string) string {
	for _, entry := range env {
		if dir, found := strings.CutPrefix(entry, "TMPDIR="); found {
			return dir
		}
	}
	return ""
}

// toPolicy translates an environment policy; an absent one takes nothing.
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

// defaultTerminationTimeout is how long a graceful termination waits when its
// caller did not say.
const defaultTerminationTimeout = 5 * time.Second

// toTermination translates how to end a process; absent is graceful.
func toTermination(m *execwirev1.Termination) process.Termination {
	t := process.Termination{Cause: process.CauseTerminated}
	if m.GetForce() != nil {
		return t
	}
	t.Timeout = durationOr(m.GetGraceful().GetTimeout(), defaultTerminationTimeout)
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
