package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
)

// Variables with the prefix that are no settings are reported once, without their
// values; those of other commands are ignored.
func TestServe_UnknownVariables_AreReported(t *testing.T) {
	c := command(t, "serve", "--listen", "unix://"+t.TempDir()+"/socket")
	c.Env = append(c.Env, "EXECWIRE_MINE=secret", "EXECWIRE_SHUTDOWN_GRACE=secret", "EXECWIRE_SERVER=local:", "EXECWIRE_HUB_LISTEN=x")
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, &errOut)
	}
	log := errOut.String()
	if strings.Count(log, "names no setting") != 2 || strings.Contains(log, "secret") || !strings.Contains(log, "variable=EXECWIRE_MINE") ||
		!strings.Contains(log, "variable=EXECWIRE_SHUTDOWN_GRACE nearest=EXECWIRE_SHUTDOWN_GRACE_PERIOD") {
		t.Errorf("the log is %q", log)
	}
}

// A misspelled sandbox setting must not start an unconfined server.
func TestServe_MisspelledSandboxVariable_DoesNotStart(t *testing.T) {
	c := command(t, "serve", "--listen", "unix://"+t.TempDir()+"/socket")
	c.Env = append(c.Env, "EXECWIRE_REQUIRED_SANDBOX=read-only")
	if got := runCommand(t, c); got.code != 125 || !strings.Contains(got.errOut, "did you mean EXECWIRE_REQUIRE_SANDBOX?") {
		t.Errorf("got %+v", got)
	}
}

// Settings, environment variables and flags have the same names in all programs, and what
// is the same in two of them has one name: the certificate of a program, its key, and the
// authorities whose certificates it accepts.
func TestSettings_VariablesAndFlags_AreTheSame(t *testing.T) {
	commands := map[string]*pflag.FlagSet{}
	for _, c := range allCommands(newRootCommand(streams{})) {
		commands[c.CommandPath()] = c.Flags()
	}
	for name, settings := range map[string][]config.Setting{
		"execwire serve": config.Settings(), "execwire config print": config.Settings(), "execwire gateway": config.Settings(),
		"execwire forward": forwardSettings(), "execwire ps": config.ClientSettings(), "execwire context add": config.ClientSettings(),
	} {
		for _, s := range settings {
			if s.Environment() != "EXECWIRE_"+strings.ToUpper(s.Name) {
				t.Errorf("the variable of %s is %s", s.Name, s.Environment())
			}
			if commands[name].Lookup(flags.Name(s.Name)) == nil {
				t.Errorf("%s has no flag for %s", name, s.Name)
			}
		}
	}
	// Flags of servers that are no settings.
	others := []string{"config", "until-stdin-closes", "handover-check", "log-format", "log-level", "log-lines", "help"}
	commands["execwire serve"].VisitAll(func(flag *pflag.Flag) {
		if !flags.IsSetting(flag) && !slices.Contains(others, flag.Name) {
			t.Errorf("serve has --%s, which is no setting", flag.Name)
		}
	})
	for _, name := range []string{"execwire serve", "execwire gateway", "execwire forward", "execwire run", "execwire context add"} {
		for _, flag := range []string{"tls-cert", "tls-key", "tls-ca"} {
			if commands[name].Lookup(flag) == nil {
				t.Errorf("%s has no --%s", name, flag)
			}
		}
	}
	// Other names are for existing launchers.
	for other, flag := range otherFlags {
		if found := commands["execwire serve"].Lookup(other); found == nil || found.Name != flag {
			t.Errorf("--%s is not --%s", other, flag)
		}
	}
}
