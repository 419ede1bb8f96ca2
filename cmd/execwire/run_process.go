package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// buildProcess makes the request from the command line. Its errors are mistakes
// on the command line.
func buildProcess(flags runFlags, arguments []string, std streams) (*execwirev1.StartProcessRequest, error) {
	directory, err := filepath.Abs(flags.directory)
	if err != nil {
		return nil, fmt.Errorf("failed to find the current directory, name one with --cwd: %w", err)
	}
	env, err := buildEnv(flags, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	policy, err := environmentPolicy(flags)
	if err != nil {
		return nil, err
	}
	limits, err := buildLimits(flags)
	if err != nil {
		return nil, err
	}
	sandbox, err := buildSandbox(flags.confine, directory)
	if err != nil {
		return nil, err
	}
	return &execwirev1.StartProcessRequest{
		SessionId: flags.session,
		ProcessId: flags.id,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{
				Argv:              arguments,
				WorkingDirectory:  directory,
				Env:               env,
				EnvironmentPolicy: policy,
				Sandbox:           sandbox,
			}}},
		Io:     buildIo(flags, std),
		Limits: limits,

		LeaveDescendants: flags.leaveDescendants,
		StartId:          uuid.NewString(),
		ReplaceClosed:    flags.replace,
	}, nil
}

func buildIo(flags runFlags, std streams) *execwirev1.ProcessIo {
	if flags.terminal {
		return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{
			Terminal: &execwirev1.TerminalIo{Size: terminalSize(std)}}}
	}
	stdin := execwirev1.StdinMode_STDIN_MODE_CLOSED
	if flags.stdin {
		stdin = execwirev1.StdinMode_STDIN_MODE_PIPE
	}
	return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: stdin}}}
}

// environmentPolicy says what the process takes from the server. Our own server
// has our own environment, so everything of it is meant, secrets included.
func environmentPolicy(flags runFlags) (*execwirev1.EnvironmentPolicy, error) {
	inherit, ours := flags.inherit, flags.server == ""
	if inherit == "" {
		inherit = "core"
		if ours {
			inherit = "all"
		}
	}
	policy := &execwirev1.EnvironmentPolicy{IgnoreDefaultExcludes: ours}
	switch inherit {
	case "none":
		policy.Inherit = execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE
	case "core":
		policy.Inherit = execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_CORE
	case "all":
		policy.Inherit = execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL
	default:
		return nil, fmt.Errorf("--env-inherit is %q: use none, core or all", flags.inherit)
	}
	return policy, nil
}

// buildEnv returns the variables to set: TERM for a terminal, then those of the
// files, then those of the flags.
func buildEnv(flags runFlags, lookup func(string) (string, bool)) (map[string]string, error) {
	env := map[string]string{}
	if value, ok := lookup("TERM"); ok && flags.terminal {
		env["TERM"] = value
	}
	for _, file := range flags.envFiles {
		set, err := readEnvFile(file, lookup)
		if err != nil {
			return nil, err
		}
		maps.Copy(env, set)
	}
	for _, entry := range flags.env {
		if err := setVariable(env, entry, lookup); err != nil {
			return nil, fmt.Errorf("--env %w", err)
		}
	}
	return env, nil
}

func readEnvFile(file string, lookup func(string) (string, bool)) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read --env-file: %w", err)
	}
	env := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if err := setVariable(env, line, lookup); err != nil {
			return nil, fmt.Errorf("--env-file %s, line %d: %w", file, i+1, err)
		}
	}
	return env, nil
}

// setVariable takes NAME=VALUE, or NAME, which is left out when it is not set
// here.
func setVariable(env map[string]string, entry string, lookup func(string) (string, bool)) error {
	name, value, ok := strings.Cut(entry, "=")
	if name == "" || strings.ContainsAny(name, " \t\x00") {
		return fmt.Errorf("%q has no name: write NAME=VALUE or NAME", entry)
	}
	if !ok {
		if value, ok = lookup(name); !ok {
			return nil
		}
	}
	env[name] = value
	return nil
}
