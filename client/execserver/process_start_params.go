package execserver

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// startParams are the parameters of process/start.
type startParams struct {
	ProcessID string            `json:"processId"`
	Argv      []string          `json:"argv"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	Tty       bool              `json:"tty"`
	Rows      uint32            `json:"rows,omitempty"`
	Cols      uint32            `json:"cols,omitempty"`
	PipeStdin bool              `json:"pipeStdin"`
	Arg0      *string           `json:"arg0,omitempty"`
	EnvPolicy *envPolicy        `json:"envPolicy,omitempty"`
	Sandbox   *wireSandbox      `json:"sandbox,omitempty"`

	mustConfine bool
	isAtRoot    bool // because there is no home directory
}

type envPolicy struct {
	Inherit               string            `json:"inherit"`
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// newStartParams returns a request for a process in a directory in the form of the
// protocol, and rejects what that cannot express.
func newStartParams(l *link, r *execwirev1.StartProcessRequest, directory string) (*startParams, error) {
	command, terminal := r.GetCommand().GetDirect(), r.GetIo().GetTerminal()
	if size := terminal.GetSize(); size != nil {
		if err := checkSize("io.terminal.size", size); err != nil {
			return nil, err
		}
	}
	switch {
	case proto.Size(r.GetLimits()) > 0:
		return nil, unsupportedRequest("a limit of a process")
	case r.GetUser() != "":
		return nil, unsupportedRequest("another user")
	case terminal.GetSize() != nil && !l.peer.extended:
		return nil, unsupportedRequest("the size of a terminal")
	case r.GetCommand().GetPrepared() != nil:
		return nil, unsupportedRequest("a prepared command")
	case command == nil:
		return nil, invalidField("command", "has no form: set direct")
	case len(command.GetArgv()) == 0:
		return nil, invalidField("command.direct.argv", "must not be empty")
	}
	p := &startParams{Argv: command.GetArgv(), Arg0: command.Arg0, Env: orEmpty(command.GetEnv()),
		Tty: terminal != nil, Rows: terminal.GetSize().GetRows(), Cols: terminal.GetSize().GetColumns(),
		PipeStdin: r.GetIo().GetPipes().GetStdin() == execwirev1.StdinMode_STDIN_MODE_PIPE}
	var err error
	if p.Cwd, err = wirePath(l, "command.direct.working_directory", directory); err != nil {
		return nil, err
	}
	if policy := command.GetEnvironmentPolicy(); policy != nil {
		inherit, ok := inherits[policy.GetInherit()]
		if !ok {
			return nil, invalidField("command.direct.environment_policy.inherit", "is not known")
		}
		p.EnvPolicy = &envPolicy{Inherit: inherit, IgnoreDefaultExcludes: policy.GetIgnoreDefaultExcludes(),
			Exclude: append([]string{}, policy.GetExclude()...), Set: orEmpty(policy.GetSet()),
			IncludeOnly: append([]string{}, policy.GetIncludeOnly()...)}
	}
	if p.Sandbox, err = newSandbox(l, "command.direct.sandbox", command.GetSandbox(), directory); err != nil {
		return nil, err
	}
	managed := command.GetSandbox().GetManaged()
	p.mustConfine = managed.GetFileSystem().GetRestricted() != nil ||
		managed != nil && managed.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	if p.mustConfine && !l.peer.uris {
		return nil, failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
			"this server does not confine processes; nothing was done")
	}
	return p, nil
}

// checkSize rejects a size that no terminal has.
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

// unsupportedRequest is the error for what the server does not support.
func unsupportedRequest(what string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
		"this server does not support %s: leave it out, or reach an execwire server by "+grpcURLs, what)
}

var inherits = map[execwirev1.EnvironmentInherit]string{
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_UNSPECIFIED: "core",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE:        "core",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL:         "all",
	execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE:        "none",
}

// orEmpty returns a map that is not written as null.
func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
