package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
		Long: `doctor reports which optional features of a server work: that of --server, of --hub
and --executor, or of --context; else of $EXECWIRE_SERVER or the current context; else
one that it starts on this machine, with the settings of --config and the environment. To test sandboxes it runs a confined program that attempts what the
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
  temporary-directory
                  whether the server's TMPDIR, or /tmp, is writable (only this machine)
  output-directory
                  whether output of detached processes can be kept in files: see
                  output_directory (only this machine)
  home-directory  whether HOME is a writable directory, which many programs need; a
                  container with a read-only root often has none (only this machine)
  user-name       whether the server's user has a name, which ssh and others need; a
                  container with a random user ID has none (only this machine)
  shell           whether the user's shell exists (only this machine)
  listeners       whether all traffic beyond this machine is encrypted, by the
                  settings (only this machine)
  principals      whether a table of principals says who may do what; else all
                  clients are one principal, which may do everything (only this
                  machine)
  tls-certificate whether the certificate of the listeners can be read and is valid
                  for two weeks (only this machine)
  metrics         whether /metrics is only for principals of the table (only this
                  machine)
  audit-log       whether who did what is recorded (only this machine)

A server that only its own user can reach, on loopback or a socket of this machine,
needs no principals and no audit-log, and metrics need no credential: for it they are
advice for production. For --require they do not work.

With --json each check is an object on its own line: check, works, detail, fix, which
says what to do, and advice, which is true for such advice.

Exit codes:
    0  the checks were made; those of --require work
    1  a check of --require does not work
    2  the command line is wrong
  125  the server cannot be reached`,
		Example: `  execwire doctor
  execwire doctor --require sandbox --server unix:///run/user/1000/execwire.sock
  execwire doctor --config /etc/execwire/config.toml --require principals --require audit-log
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
	addConnectFlags(command, &flags.connect, serverHelp+ephemeralServers, localURL)
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
	// Advice: it need not work, unless others than the server's user are to use the server.
	Advice bool `json:"advice,omitempty"`
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
	checkTemporary     = "temporary-directory"
	checkOutput        = "output-directory"
	checkHome          = "home-directory"
	checkUserName      = "user-name"
	checkShell         = "shell"
	checkListeners     = "listeners"
	checkPrincipals    = "principals"
	checkCertificate   = "tls-certificate"
	checkMetrics       = "metrics"
	checkAuditLog      = "audit-log"
)

var checkNames = []string{checkSandbox, checkBubblewrap, checkLandlock, checkRequired, checkControlGroups, checkGuardian, checkLoopbackUsers, checkDescriptors, checkWatches,
	checkProcessLimit, checkMemoryLimit, checkOOMScore, checkTemporary, checkOutput, checkHome, checkUserName, checkShell,
	checkListeners, checkPrincipals, checkCertificate, checkMetrics, checkAuditLog}

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
	switch {
	case c.Advice:
		state = "advice for production"
	case !c.Works:
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

// machine reads properties of a machine. root is its file system; empty for another
// machine.
type machine struct{ root string }

// unknownMachine is a machine other than this one.
var unknownMachine = machine{}

// setting reads a number from /proc/sys.
func (m machine) setting(name string) (value int, known bool) {
	if m.root == "" {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(m.root, "proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return 0, false
	}
	value, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return value, err == nil
}

// userNamespaces are the sysctls that disable unprivileged user namespaces, with the
// values that do not.
var userNamespaces = []struct {
	name      string
	bad, good int
}{
	{"user.max_user_namespaces", 0, 15000},
	{"kernel.unprivileged_userns_clone", 0, 1},
	{"kernel.apparmor_restrict_unprivileged_userns", 1, 0},
}

// sandboxFix returns a fix for a sandbox backend, in addition to its problem.
func (m machine) sandboxFix(status *execwirev1.SandboxStatus) string {
	if status.GetBackend() != execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP || status.GetProgram() == "" {
		return ""
	}
	for _, s := range userNamespaces {
		if value, known := m.setting(s.name); known && value == s.bad {
			return fmt.Sprintf("user namespaces are disabled on this machine: as root, sysctl %s=%d", s.name, s.good)
		}
	}
	if strings.Contains(status.GetProblem(), "switched off") {
		return "sandbox_backends = auto uses it"
	}
	return "bubblewrap needs user namespaces and a /proc that nothing covers; a container has to allow both, as Docker does with " +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
}
