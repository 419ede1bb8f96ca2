package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// workingDirectory returns the directory of --cwd. A relative one begins at the server's
// default, which is empty; that of a server inside this program is the current directory,
// unless there is another user.
func workingDirectory(server, user, directory string) (string, error) {
	switch {
	case server != "" && !path.IsAbs(directory) && isForeignPath(runtime.GOOS, directory):
		return "", fmt.Errorf("--cwd is %q, which is not a path of the server: on Windows, begin it with /, as in /srv/src", directory)
	case server != "", user != "":
		return directory, nil
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", fmt.Errorf("failed to find the current directory, name one with --cwd: %w", err)
	}
	return directory, nil
}

// buildProcess builds the request from the command line. Its errors are usage errors.
func buildProcess(flags runFlags, arguments []string, std streams) (*execwirev1.StartProcessRequest, error) {
	directory, err := workingDirectory(flags.server, flags.user, flags.directory)
	if err != nil {
		return nil, err
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
	sandbox, err := buildSandbox(flags.confine, flags.server, directory)
	if err != nil {
		return nil, err
	}
	for i, argument := range arguments {
		if !utf8.ValidString(argument) {
			return nil, fmt.Errorf("argument %d is %q, which is not UTF-8: servers accept only UTF-8", i, argument)
		}
	}
	request := &execwirev1.StartProcessRequest{
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
		User:             flags.user,
	}
	if flags.keep > 0 {
		request.Keep = durationpb.New(flags.keep)
	}
	return request, nil
}

func buildIo(flags runFlags, std streams) *execwirev1.ProcessIo {
	if flags.terminal {
		return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{
			Terminal: &execwirev1.TerminalIo{Size: terminal.Size(std.out, std.in, std.err)}}}
	}
	stdin := execwirev1.StdinMode_STDIN_MODE_CLOSED
	if flags.stdin {
		stdin = execwirev1.StdinMode_STDIN_MODE_PIPE
	}
	return &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: stdin}}}
}

// environmentPolicy selects what the process inherits from the server. The embedded
// server has the environment of this program, so the process inherits all of it,
// including secrets.
func environmentPolicy(flags runFlags) (*execwirev1.EnvironmentPolicy, error) {
	inherit, ours := flags.inherit, flags.server == ""
	if inherit == "" {
		inherit = "core"
		if ours && flags.user == "" { // its secrets are not those of another user
			inherit = "all"
		}
	}
	value, known := execwirev1.EnvironmentInherit_value["ENVIRONMENT_INHERIT_"+strings.ToUpper(inherit)]
	if !known || value == 0 || inherit != strings.ToLower(inherit) {
		return nil, fmt.Errorf("--env-inherit is %q: use none, core or all", flags.inherit)
	}
	return &execwirev1.EnvironmentPolicy{IgnoreDefaultExcludes: ours, Inherit: execwirev1.EnvironmentInherit(value)}, nil
}

// buildEnv returns the variables to set: TERM for a terminal, then those of the
// files, then those of the flags.
func buildEnv(flags runFlags, lookup func(string) (string, bool)) (map[string]string, error) {
	env := map[string]string{}
	value, ok := lookup("TERM")
	if !ok && runtime.GOOS == windowsSystem {
		value, ok = "xterm-256color", true // what its consoles are, and no variable says
	}
	if ok && flags.terminal {
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

// setVariable parses NAME=VALUE, or NAME, which is skipped if it is not set here.
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
	if !utf8.ValidString(name + value) {
		return fmt.Errorf("%s is %q, which is not UTF-8: servers accept only UTF-8", name, value)
	}
	env[name] = value
	return nil
}

// buildLimits returns the limits of a process; nil without any.
func buildLimits(flags runFlags) (*execwirev1.ProcessLimits, error) {
	var limits execwirev1.ProcessLimits
	if flags.timeout != 0 {
		limits.Timeout = durationpb.New(flags.timeout)
	}
	if flags.silence != 0 {
		limits.NoOutputTimeout = durationpb.New(flags.silence)
	}
	if flags.nice != 0 {
		limits.Nice = &flags.nice
	}
	for _, text := range flags.limits {
		limit, err := parseLimit(text)
		if err != nil {
			return nil, err
		}
		limits.ResourceLimits = append(limits.ResourceLimits, limit)
	}
	if limits.Timeout == nil && limits.NoOutputTimeout == nil && limits.Nice == nil && limits.ResourceLimits == nil {
		return nil, nil
	}
	return &limits, nil
}

// limitNames are the resource names on the command line: those of the contract, in
// lower case with hyphens.
func limitNames() map[string]execwirev1.LimitedResource {
	names := map[string]execwirev1.LimitedResource{}
	for value, name := range execwirev1.LimitedResource_name {
		if value != 0 {
			name = strings.ToLower(strings.TrimPrefix(name, "LIMITED_RESOURCE_"))
			names[strings.ReplaceAll(name, "_", "-")] = execwirev1.LimitedResource(value)
		}
	}
	return names
}

// parseLimit parses NAME=SOFT or NAME=SOFT:HARD.
func parseLimit(text string) (*execwirev1.ResourceLimit, error) {
	name, values, ok := strings.Cut(text, "=")
	names := limitNames()
	resource, known := names[name]
	if !ok || !known {
		return nil, fmt.Errorf("--limit %q: write NAME=SOFT or NAME=SOFT:HARD, where NAME is one of %s",
			text, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	inBytes := strings.HasSuffix(name, "-bytes")
	soft, hard, both := strings.Cut(values, ":")
	limit := &execwirev1.ResourceLimit{Resource: resource}
	var err error
	if limit.Soft, err = parseLimitValue(soft, inBytes); err != nil {
		return nil, fmt.Errorf("--limit %s: %w", name, err)
	}
	if !both {
		return limit, nil
	}
	value, err := parseLimitValue(hard, inBytes)
	if err != nil {
		return nil, fmt.Errorf("--limit %s: %w", name, err)
	}
	limit.Hard = &value
	return limit, nil
}

func parseLimitValue(text string, inBytes bool) (uint64, error) {
	if text == "unlimited" {
		return math.MaxUint64, nil
	}
	if inBytes {
		n, err := config.ParseBytes(text)
		return uint64(n), err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number; write for example 100, or unlimited", text)
	}
	return n, nil
}
