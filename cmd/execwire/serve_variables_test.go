package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// Every flag for a setting has one of the daemon.
func TestOverrides_NameSettings(t *testing.T) {
	f := newServeCommand(streams{}).Flags()
	for _, group := range []flags.Overrides{websocketOverrides, clientOverrides, remoteOverrides} {
		for flag, setting := range group {
			if f.Lookup(flag) == nil || !slices.ContainsFunc(config.Settings(), func(s config.Setting) bool { return s.Name == setting }) {
				t.Errorf("there is no flag %s or no setting %s", flag, setting)
			}
		}
	}
}
