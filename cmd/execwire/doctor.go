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
		Short: "Say what works here, and what to do about what does not",
		Long: `doctor says what a server offers of what not every machine has, and without a
server what one on this machine would, with the settings of --config and the
environment: sandboxes are tried out for that, by a program that is confined and
tries what it must not.

The checks, by their names:

  sandbox         whether anything confines processes and calls about files
  bubblewrap      whether bubblewrap does, which expresses every policy
  landlock        whether Landlock does, which cannot protect what is in a writable
                  directory
  require-sandbox what the server confines everything by; it fails if that cannot be
                  enforced
  control-groups  whether processes get control groups, which makes killing certain
  guardian        whether everything ends should the server be killed
  loopback-users  whether loopback is for the server's user, root and those that
                  loopback_users names; not if that is any
  descriptors     how many files the server may have open (only of this machine)
  watches         how many directories may be watched (only of this machine)
  process-limit   whether processes leave the server what it needs of the processes
                  and threads that there may be (only of this machine)
  memory-limit    how much memory there is for the server and its processes, and
                  what is kept of output (only of this machine)
  oom-score       whether processes are killed before the server when there is no
                  memory left (only of this machine)

With --json every check is an object on a line of its own: check, works, detail, and
fix, which says what to do.

Exit codes:
    0  it was found out; what --require names works
    1  something that --require names does not
    2  the command line is wrong
  125  there is no such server`,
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
			checks, err := examine(command.Context(), flags)
			if err != nil {
				return err
			}
			return tellChecks(checks, flags, std)
		},
	}
	f := command.Flags()
	addConnectFlags(command, &flags.connect)
	f.StringVar(&flags.config, "config", "", "without --server: the TOML `file` with the settings of the server that would be started")
	f.StringArrayVar(&flags.require, "require", nil, "exit with 1 if this `check` does not work; may be repeated")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	return command
}

// checksOfServer makes the checks of a server. One that says nothing of itself, as a
// server of the exec-server protocol that is not of execwire, has none.
func checksOfServer(said *execwirev1.GetEnvironmentResponse) ([]check, error) {
	if said.GetLimits() == nil {
		return nil, &exitError{code: codeFailed, err: errors.New("the server does not tell what works there: it is not one of execwire")}
	}
	return checksOf(said, said.GetGuarded(), nowhere), nil
}

// check is something that works or does not.
type check struct {
	Check  string `json:"check"`
	Works  bool   `json:"works"`
	Detail string `json:"detail"`
	// Fix says what to do if it does not work.
	Fix string `json:"fix,omitempty"`
}

// The names of checks.
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

// examine makes the checks, of a server or of this machine.
func examine(ctx context.Context, flags doctorFlags) ([]check, error) {
	if flags.connect.server == "" {
		return examineHere(ctx, flags.config)
	}
	c, closeClient, err := connect(ctx, flags.connect)
	if err != nil {
		return nil, explainDial(err)
	}
	defer closeClient()
	said, err := c.Describe(ctx)
	if err != nil {
		return nil, explainDoctor(client.FromRPC(err))
	}
	return checksOfServer(said)
}

func explainDoctor(err error) error {
	return &exitError{code: codeFailed, err: err, hint: doorHint(err)}
}

// examineHere makes the checks of a server inside this program.
func examineHere(ctx context.Context, file string) ([]check, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return nil, err
	}
	cfg.Principals = "" // nobody else can reach it
	options := daemon.Options{Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)}
	d, err := daemon.New(cfg, options)
	unmet := (*config.Error)(nil)
	if errors.As(err, &unmet) && unmet.Setting == "require_sandbox" {
		cfg.RequiredSandbox, cfg.SandboxWritableRoots, cfg.SandboxNetwork = config.SandboxOff, nil, "off"
		d, err = daemon.New(cfg, options)
	} else {
		unmet = nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to start a server in this program: %w", err)
	}
	defer func() { _ = d.Close() }()
	said, err := client.New(d.Conn()).Describe(ctx)
	if err != nil {
		return nil, explainDoctor(client.FromRPC(err))
	}
	here := machine{root: "/"}
	checks := checksOf(said, cfg.Guardian == "on", here)
	if unmet != nil {
		i := slices.IndexFunc(checks, func(c check) bool { return c.Check == checkRequired })
		checks[i] = check{Check: checkRequired, Detail: unmet.Problem, Fix: "a server with these settings does not start: mend a sandbox, or require less"}
	}
	return append(checks, here.descriptors(), here.watches(), processLimit(d.ProcessReserve()), here.memory(cfg), oomScore(cfg)), nil
}

// checksOf are the checks that a server answers. What to do is found out from the
// machine, if that is known.
func checksOf(said *execwirev1.GetEnvironmentResponse, guarded bool, here machine) []check {
	sandbox := check{Check: checkSandbox, Works: len(said.GetSandboxBackends()) > 0,
		Detail: "every request with a sandbox is refused", Fix: "mend one of those below"}
	if sandbox.Works {
		sandbox.Detail, sandbox.Fix = "requests can be confined; in a workspace .git is protected at the top only", ""
	}
	checks := []check{sandbox}
	for _, status := range said.GetSandboxes() {
		one := check{Check: enumWord(status.GetBackend(), "SANDBOX_BACKEND_"), Works: status.GetWorks(), Detail: status.GetProgram()}
		if !one.Works {
			one.Detail, one.Fix = status.GetProblem(), here.mend(status)
		}
		checks = append(checks, one)
	}
	required := check{Check: checkRequired, Works: true, Detail: "none: processes and calls about files are confined if a request says so"}
	if said.GetRequiredSandbox() != nil {
		required.Detail = "everything is confined, and requests can only narrow it"
	}
	groups := check{Check: checkControlGroups, Works: said.GetKillMethod() == execwirev1.KillMethod_KILL_METHOD_CGROUP,
		Detail: "whoever leaves a process is looked for, and killed by " + strings.ReplaceAll(enumWord(said.GetKillMethod(), "KILL_METHOD_"), "_", " "),
		Fix:    "give the server a cgroup v2 tree that it may write to, as systemd does with Delegate=yes"}
	if groups.Works {
		groups.Detail, groups.Fix = "", ""
	}
	guardian := check{Check: checkGuardian, Works: guarded,
		Detail: "processes outlive a server that is killed", Fix: "leave guardian on, and start it with execwire serve"}
	if guarded {
		guardian.Detail, guardian.Fix = "", ""
	}
	loopback := check{Check: checkLoopbackUsers, Works: !said.GetLoopbackAnyUser(),
		Detail: "loopback_users is any: every user of that machine runs commands as the server's user",
		Fix:    "name the users in loopback_users, or have clients show a token"}
	if loopback.Works {
		loopback.Detail, loopback.Fix = "", ""
	}
	return append(checks, required, groups, guardian, loopback)
}

// tellChecks prints what was found out. What has to work and does not is the exit
// code.
func tellChecks(checks []check, flags doctorFlags, std streams) error {
	missing := false
	for _, c := range checks {
		missing = missing || !c.Works && slices.Contains(flags.require, c.Check)
		if err := tellCheck(c, flags.json, std); err != nil {
			return err
		}
	}
	for _, name := range flags.require {
		missing = missing || !slices.ContainsFunc(checks, func(c check) bool { return c.Check == name })
	}
	if missing {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

func tellCheck(c check, asJSON bool, std streams) error {
	if asJSON {
		return printJSON(std.out, c)
	}
	state := "works"
	if !c.Works {
		state = "does not work"
	}
	if c.Detail != "" {
		state += ": " + shown(c.Detail)
	}
	if c.Fix != "" {
		state += "\n  " + shown(c.Fix)
	}
	_, err := fmt.Fprintf(std.out, "%s: %s\n", c.Check, state)
	return err
}
