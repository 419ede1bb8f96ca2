package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// sandboxFlags say what a process may touch.
type sandboxFlags struct {
	sandbox  string
	isAsked  bool // --sandbox is there, whatever it says
	writable []string
	network  bool
}

// The words of --sandbox. Anything else is a file.
const (
	sandboxReadOnly       = "read-only"
	sandboxWorkspaceWrite = "workspace-write"
)

// buildSandbox makes the policy of a process that runs in a directory; without flags
// it returns nil.
func buildSandbox(flags sandboxFlags, directory string) (*execwirev1.SandboxPolicy, error) {
	sandbox := client.Sandbox{Network: flags.network}
	switch {
	case flags.isAsked && flags.sandbox == "":
		// As of a variable that is not set: it is not meant to mean no sandbox.
		return nil, fmt.Errorf("--sandbox is empty: use %s, %s or a file with a policy, or leave it out", sandboxReadOnly, sandboxWorkspaceWrite)
	case flags.sandbox == "" && (len(flags.writable) > 0 || flags.network):
		return nil, errors.New("--writable and --network are for a process in a sandbox: add --sandbox " + sandboxWorkspaceWrite)
	case flags.sandbox == "":
		return nil, nil
	case flags.sandbox == sandboxReadOnly && len(flags.writable) > 0:
		return nil, errors.New("--writable is not for --sandbox read-only: use --sandbox " + sandboxWorkspaceWrite)
	case flags.sandbox == sandboxReadOnly:
		return sandbox.Policy(), nil
	case flags.sandbox == sandboxWorkspaceWrite:
		sandbox.Temporary = true
		sandbox.Writable = []string{directory}
		for _, dir := range flags.writable {
			absolute, err := filepath.Abs(dir)
			if dir == "" || err != nil {
				return nil, fmt.Errorf("--writable is %q: name a directory", dir)
			}
			sandbox.Writable = append(sandbox.Writable, absolute)
		}
		return sandbox.Policy(), nil
	case len(flags.writable) > 0 || flags.network:
		return nil, errors.New("--writable and --network are not for a file: what it does not grant is not granted")
	}
	return readPolicy(flags.sandbox)
}

// findWritable refuses a directory of --writable that the server does not have: what is
// missing could not be made by the process either, and nothing would say why. What
// cannot be asked, of a server whose files are nobody's, stays open.
func findWritable(ctx context.Context, c *client.Client, flags sandboxFlags) error {
	for _, dir := range flags.writable {
		absolute, err := filepath.Abs(dir)
		if err == nil {
			_, err = c.Stat(ctx, absolute)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return &exitError{code: codeFailed, err: fmt.Errorf("--writable %s: there is no such directory", shown(absolute)),
				hint: "make it first, or name one around it that is there"}
		}
	}
	return nil
}

// readPolicy reads a policy from a file.
func readPolicy(file string) (*execwirev1.SandboxPolicy, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--sandbox is %q: use %s, %s or a file with a policy", file, sandboxReadOnly, sandboxWorkspaceWrite)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the policy of --sandbox: %w", err)
	}
	policy := &execwirev1.SandboxPolicy{}
	if err := protojson.Unmarshal(text, policy); err != nil {
		return nil, fmt.Errorf("--sandbox %s is no SandboxPolicy as JSON of protobuf: %w", file, err)
	}
	if policy.GetPolicy() == nil {
		return nil, fmt.Errorf("--sandbox %s says nothing: write managed, disabled or external", file)
	}
	return policy, nil
}

// explainDenied adds what to do next, for somebody at a terminal, to the end of a
// process that its sandbox seems to have kept from something.
func explainDenied(ended error, exit client.Exit, flags sandboxFlags, std streams) error {
	var code *exitError
	if !exit.SandboxDenied || !errors.As(ended, &code) || code.err != nil || !term.IsTerminal(int(std.err.Fd())) {
		return ended
	}
	return &exitError{code: code.code, err: errors.New("the sandbox seems to have denied the process something"), hint: flags.more()}
}

// more says how to be denied less.
func (f sandboxFlags) more() string {
	var how string
	switch f.sandbox {
	case "":
		return "it is the sandbox that the server requires: its administrator can allow more"
	case sandboxReadOnly:
		how = "let the working directory be written to with --sandbox " + sandboxWorkspaceWrite
	case sandboxWorkspaceWrite:
		how = "let another directory, .git among them, be written to with --writable DIR"
	default:
		return "allow more in " + f.sandbox
	}
	if !f.network {
		how += ", or the network be reached with --network"
	}
	return how
}
