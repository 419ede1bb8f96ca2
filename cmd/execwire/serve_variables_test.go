package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
)

// What looks like a setting and is none is said, once, and without what it is set to;
// what other commands have is not looked at.
func TestVariablesThatAreNoSettingsAreSaid(t *testing.T) {
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
	said := errOut.String()
	if strings.Count(said, "names no setting") != 2 || strings.Contains(said, "secret") || !strings.Contains(said, "variable=EXECWIRE_MINE") ||
		!strings.Contains(said, "variable=EXECWIRE_SHUTDOWN_GRACE nearest=EXECWIRE_SHUTDOWN_GRACE_PERIOD") {
		t.Errorf("it says %q", said)
	}
}

// A server that was to be confined does not start because of a letter.
func TestMisspelledVariablesKeepServersFromStarting(t *testing.T) {
	c := command(t, "serve", "--listen", "unix://"+t.TempDir()+"/socket")
	c.Env = append(c.Env, "EXECWIRE_REQUIRED_SANDBOX=read-only")
	if got := runCommand(t, c); got.code != 125 || !strings.Contains(got.errOut, "did you mean EXECWIRE_REQUIRE_SANDBOX?") {
		t.Errorf("got %+v", got)
	}
}
