package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// sandboxFlags are the flags for the sandbox of a process.
type sandboxFlags struct {
	sandbox  string // as the setting require_sandbox; a relative path is allowed
	isAsked  bool   // --sandbox is present, even if empty
	writable []string
	network  bool
}

// buildSandbox returns the policy of a process of a server in a directory, which is empty
// for the default of that server; nil without flags.
func buildSandbox(flags sandboxFlags, server, directory string) (*execwirev1.SandboxPolicy, error) {
	sandbox := client.Sandbox{Network: flags.network}
	switch {
	case flags.isAsked && flags.sandbox == "":
		// An empty value, for example from an unset variable, must not disable the
		// sandbox.
		return nil, fmt.Errorf("--sandbox is empty: use %s, %s or a file with a policy, or leave it out", config.SandboxReadOnly, config.SandboxWorkspaceWrite)
	case flags.sandbox == "" && (len(flags.writable) > 0 || flags.network):
		return nil, errors.New("--writable and --network are for a process in a sandbox: add --sandbox " + config.SandboxWorkspaceWrite)
	case flags.sandbox == "":
		return nil, nil
	case flags.sandbox == config.SandboxReadOnly && len(flags.writable) > 0:
		return nil, errors.New("--writable is not for --sandbox read-only: use --sandbox " + config.SandboxWorkspaceWrite)
	case flags.sandbox == config.SandboxReadOnly:
		return sandbox.Policy(), nil
	case flags.sandbox == config.SandboxWorkspaceWrite && !path.IsAbs(directory):
		return nil, errors.New("--sandbox workspace-write makes the working directory writable: name it with --cwd, by its absolute path")
	case flags.sandbox == config.SandboxWorkspaceWrite:
		sandbox.Temporary = true
		sandbox.Writable = []string{directory}
		for _, dir := range flags.writable {
			absolute, err := writablePath(server, dir)
			if dir == "" || err != nil {
				return nil, fmt.Errorf("--writable is %q: name a directory by its absolute path", dir)
			}
			sandbox.Writable = append(sandbox.Writable, absolute)
		}
		return sandbox.Policy(), nil
	case len(flags.writable) > 0 || flags.network:
		return nil, errors.New("--writable and --network cannot be combined with a policy file: grant the access in the file")
	}
	return readPolicy(flags.sandbox)
}

// errRelative is the error for a relative path of a server.
var errRelative = errors.New("is relative")

// writablePath returns the path of --writable, which may begin with a colon that is part of
// it. On a server other than that inside this program it is absolute.
func writablePath(server, dir string) (string, error) {
	if server == "" {
		return filepath.Abs(dir)
	}
	if !path.IsAbs(dir) {
		return "", errRelative
	}
	return path.Clean(dir), nil
}

// checkWritable rejects a missing --writable directory: the process could not create it
// either, without a clear error. It ignores servers without file access.
func checkWritable(ctx context.Context, c *client.Client, flags sandboxFlags, server string) error {
	for _, dir := range flags.writable {
		absolute, err := writablePath(server, dir)
		if err == nil {
			_, err = c.Stat(ctx, absolute)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return &exitError{code: codeFailed, err: fmt.Errorf("--writable %s: there is no such directory", printable(absolute)),
				hint: "make it first, or name one around it that is there"}
		}
	}
	return nil
}

// readPolicy reads a policy from a file.
func readPolicy(file string) (*execwirev1.SandboxPolicy, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--sandbox is %q: use %s, %s or a file with a policy", file, config.SandboxReadOnly, config.SandboxWorkspaceWrite)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the policy of --sandbox: %w", err)
	}
	policy := &execwirev1.SandboxPolicy{}
	if err := protojson.Unmarshal(text, policy); err != nil {
		return nil, fmt.Errorf("--sandbox %s is not a SandboxPolicy in protobuf JSON: %w", file, err)
	}
	if policy.GetPolicy() == nil {
		return nil, fmt.Errorf("--sandbox %s is empty: set managed, disabled or external", file)
	}
	return policy, nil
}

// explainDenied adds a hint, at a terminal, if the sandbox apparently denied the
// process access.
func explainDenied(ended error, exit client.Exit, flags sandboxFlags, std streams) error {
	var code *exitError
	if !exit.SandboxDenied || !errors.As(ended, &code) || code.err != nil || !term.IsTerminal(int(std.err.Fd())) {
		return ended
	}
	return &exitError{code: code.code, err: errors.New("the sandbox apparently denied the process access"), hint: flags.hint()}
}

// hint returns how to allow more.
func (f sandboxFlags) hint() string {
	var how string
	switch f.sandbox {
	case "":
		return "the server requires this sandbox: its administrator can allow more"
	case config.SandboxReadOnly:
		how = "allow writes to the working directory with --sandbox " + config.SandboxWorkspaceWrite
	case config.SandboxWorkspaceWrite:
		how = "allow writes to another directory, including .git, with --writable DIR"
	default:
		return "allow more in " + f.sandbox
	}
	if !f.network {
		how += ", or network access with --network"
	}
	return how
}
