package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

type doctorFlags struct {
	connect connectFlags
	config  string
	require []string
	json    bool
}

func newDoctorCommand(std streams) *cobra.Command {
	var flags doctorFlags
	command := &cobra.Command{
		Use:   "doctor [--server URL] [--require CHECK]... [--json]",
		Short: "Check which features work, and how to fix those that do not",
		Long: `doctor reports which optional features of a server work. Without --server it reports
on a server that it starts on this machine, with the settings of --config and the
environment. To test sandboxes it runs a confined program that attempts what the
sandbox must prevent.

Checks:

  sandbox         whether any backend confines processes and file calls
  bubblewrap      whether bubblewrap works, which supports every policy
  landlock        whether Landlock works, which cannot protect a path in a writable
                  directory
  require-sandbox whether the sandbox that the server requires can be enforced
  control-groups  whether processes get control groups, which makes killing certain
  guardian        whether all processes are killed if the server is killed
  loopback-users  whether loopback is restricted to the server's user, root and the
                  users in loopback_users; fails if loopback_users is any
  descriptors     how many files the server may have open (only this machine)
  watches         how many directories may be watched (only this machine)
  process-limit   whether processes and threads are reserved for the server
                  (only this machine)
  memory-limit    how much memory the server and its processes may use, and how
                  much output is retained (only this machine)
  oom-score       whether the kernel kills processes before the server when memory
                  runs out (only this machine)

With --json each check is an object on its own line: check, works, detail, and fix,
which says what to do.

Exit codes:
    0  the checks were made; those of --require work
    1  a check of --require does not work
    2  the command line is wrong
  125  the server cannot be reached`,
		Example: `  execwire doctor
  execwire doctor --require sandbox --server unix:///run/user/1000/execwire.sock
  execwire doctor --json | jq -r 'select(.works | not).check'`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			for _, name := range flags.require {
				if !slices.Contains(checkNames, name) {
					return usageError(command, fmt.Errorf("--require is %q: use one of %s", name, strings.Join(checkNames, ", ")))
				}
			}
			checks, err := runChecks(command.Context(), flags)
			if err != nil {
				return err
			}
			return printChecks(checks, flags, std)
		},
	}
	f := command.Flags()
	f.StringVar(&flags.config, "config", "", "without --server: the TOML `file` with the settings of the server")
	f.StringArrayVar(&flags.require, "require", nil, "exit with 1 if this `check` does not work; may be repeated")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addConnectFlags(command, &flags.connect, serverHelp+ephemeralServers, "one in this program")
	return command
}

// checksOfServer returns the checks of a server. A server of the exec-server protocol
// other than execwire provides no information.
func checksOfServer(environment *execwirev1.GetEnvironmentResponse) ([]check, error) {
	if environment.GetLimits() == nil {
		return nil, &exitError{code: codeFailed, err: errors.New("the server provides no information about its features: it is not an execwire server")}
	}
	return checksOf(environment, environment.GetGuarded(), unknownMachine), nil
}

// check is the result of one check.
type check struct {
	Check  string `json:"check"`
	Works  bool   `json:"works"`
	Detail string `json:"detail"`
	// Fix describes how to fix it.
	Fix string `json:"fix,omitempty"`
}

// newCheck returns a check with a detail for each result, and a fix.
func newCheck(name string, works bool, good, bad, fix string) check {
	if works {
		return check{Check: name, Works: true, Detail: good}
	}
	return check{Check: name, Detail: bad, Fix: fix}
}

// Names of checks.
const (
	checkSandbox       = "sandbox"
	checkBubblewrap    = "bubblewrap"
	checkLandlock      = "landlock"
	checkRequired      = "require-sandbox"
	checkControlGroups = "control-groups"
	checkGuardian      = "guardian"
	checkLoopbackUsers = "loopback-users"
	checkDescriptors   = "descriptors"
	checkWatches       = "watches"
	checkProcessLimit  = "process-limit"
	checkMemoryLimit   = "memory-limit"
	checkOOMScore      = "oom-score"
)

var checkNames = []string{checkSandbox, checkBubblewrap, checkLandlock, checkRequired, checkControlGroups, checkGuardian, checkLoopbackUsers, checkDescriptors, checkWatches,
	checkProcessLimit, checkMemoryLimit, checkOOMScore}

// runChecks runs the checks of a server or of this machine.
func runChecks(ctx context.Context, flags doctorFlags) ([]check, error) {
	if flags.connect.server == "" {
		return runLocalChecks(ctx, flags.config)
	}
	var checks []check
	err := withServer(ctx, flags.connect, func(c *client.Client) error {
		environment, err := c.Describe(ctx)
		if err == nil {
			checks, err = checksOfServer(environment)
		}
		return err
	})
	return checks, err
}

// runLocalChecks runs the checks of a server inside this program.
func runLocalChecks(ctx context.Context, file string) ([]check, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return nil, err
	}
	cfg.Principals = "" // no other client can reach it
	options := daemon.Options{Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)}
	d, err := daemon.New(cfg, options)
	var unmet *config.Error
	hasUnmet := errors.As(err, &unmet) && unmet.Setting == "require_sandbox"
	if hasUnmet {
		cfg.RequiredSandbox, cfg.SandboxWritableRoots, cfg.SandboxNetwork = config.SandboxOff, nil, "off"
		d, err = daemon.New(cfg, options)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to start a server in this program: %w", err)
	}
	defer func() { _ = d.Close() }()
	environment, err := client.New(d.Conn()).Describe(ctx)
	if err != nil {
		return nil, explain(err, nil)
	}
	here := machine{root: "/"}
	checks := checksOf(environment, cfg.Guardian == "on", here)
	if hasUnmet {
		i := slices.IndexFunc(checks, func(c check) bool { return c.Check == checkRequired })
		checks[i] = check{Check: checkRequired, Detail: unmet.Problem, Fix: "a server with these settings does not start: mend a sandbox, or require less"}
	}
	return append(checks, here.descriptors(), here.watches(), processLimit(d.ProcessReserve()), here.memory(cfg), oomScore(cfg)), nil
}

// checksOf returns the checks of a server. The machine, if known, provides the fixes.
func checksOf(environment *execwirev1.GetEnvironmentResponse, guarded bool, here machine) []check {
	checks := []check{newCheck(checkSandbox, len(environment.GetSandboxBackends()) > 0,
		"requests can be confined; in a workspace only the top-level .git is protected",
		"every request with a sandbox is refused", "fix one of those below")}
	for _, status := range environment.GetSandboxes() {
		checks = append(checks, newCheck(enumWord(status.GetBackend(), "SANDBOX_BACKEND_"), status.GetWorks(),
			status.GetProgram(), status.GetProblem(), here.sandboxFix(status)))
	}
	required := "none: processes and file calls are confined if requested"
	if environment.GetRequiredSandbox() != nil {
		required = "everything is confined, and requests can only narrow it"
	}
	method := strings.ReplaceAll(enumWord(environment.GetKillMethod(), "KILL_METHOD_"), "_", " ")
	return append(checks,
		check{Check: checkRequired, Works: true, Detail: required},
		newCheck(checkControlGroups, environment.GetKillMethod() == execwirev1.KillMethod_KILL_METHOD_CGROUP, "",
			"processes that leave the process group are searched for, and killed by "+method,
			"give the server a cgroup v2 tree that it may write to, as systemd does with Delegate=yes"),
		newCheck(checkGuardian, guarded, "",
			"processes outlive a server that is killed", "leave guardian on, and start it with execwire serve"),
		newCheck(checkLoopbackUsers, !environment.GetLoopbackAnyUser(), "",
			"loopback_users is any: every user of that machine runs commands as the server's user",
			"name the users in loopback_users, or require tokens of clients"))
}

// printChecks prints the checks. A failed required check determines the exit code.
func printChecks(checks []check, flags doctorFlags, std streams) error {
	var working []string
	for _, c := range checks {
		if c.Works {
			working = append(working, c.Check)
		}
		if err := printCheck(c, flags.json, std); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(flags.require, func(name string) bool { return !slices.Contains(working, name) }) {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

func printCheck(c check, asJSON bool, std streams) error {
	if asJSON {
		return printJSON(std.out, c)
	}
	state := "works"
	if !c.Works {
		state = "does not work"
	}
	if c.Detail != "" {
		state += ": " + printable(c.Detail)
	}
	if c.Fix != "" {
		state += "\n  " + printable(c.Fix)
	}
	_, err := fmt.Fprintf(std.out, "%s: %s\n", c.Check, state)
	return err
}
