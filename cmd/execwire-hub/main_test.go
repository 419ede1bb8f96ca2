package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/leakcheck"
)

// runCommandVariable in the environment makes the test binary run the command.
const runCommandVariable = "EXECWIRE_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runCommandVariable) != "" {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	leakcheck.Main(m)
}

func command(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, arguments...)
	c.Dir = t.TempDir()
	c.Env = []string{runCommandVariable + "=1", "GORACE=atexit_sleep_ms=0"}
	return c
}

func TestHub_PrintsURLAndStops(t *testing.T) {
	c := command(t, "--listen", "http://127.0.0.1:0")
	c.Env = append(c.Env, "EXECWIRE_HUB_MINE=secret", "EXECWIRE_MINE=secret")
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") || strings.HasSuffix(line, ":0\n") {
		t.Errorf("it says %q, %v", line, err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, &errOut)
	}
	if said := errOut.String(); strings.Count(said, "names no setting") != 1 || !strings.Contains(said, "variable=EXECWIRE_HUB_MINE") || strings.Contains(said, "secret") {
		t.Errorf("of a variable that is no setting it says %q", said)
	}
}

func TestHub_UsageErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		variable  string
		code      int
		says      string
	}{
		"argument":    {[]string{"serve"}, "", codeUsage, `"serve" is not a command`},
		"flag":        {[]string{"--port", "1"}, "", codeUsage, "unknown flag: --port"},
		"log":         {[]string{"--log-level", "loud"}, "", codeUsage, `log level "loud"`},
		"plain text":  {[]string{"--listen", "http://0.0.0.0:0"}, "", codeFailed, "--allow-http"},
		"no table":    {[]string{"--listen", "http://0.0.0.0:0", "--allow-http"}, "", codeFailed, "principals_file"},
		"file":        {[]string{"--config", "none.toml"}, "", codeFailed, "none.toml: does not exist"},
		"misspelled":  {nil, "EXECWIRE_HUB_FRAMEBYTES=1", codeFailed, "did you mean EXECWIRE_HUB_FRAME_BYTES?"},
		"environment": {nil, "EXECWIRE_HUB_FRAME_BYTES=1", codeFailed, "frame_bytes is below"},
	} {
		t.Run(name, func(t *testing.T) {
			c := command(t, tc.arguments...)
			c.Env = append(c.Env, tc.variable)
			said, err := c.CombinedOutput()
			if err == nil || c.ProcessState.ExitCode() != tc.code || !strings.Contains(string(said), tc.says) {
				t.Errorf("%v, %q, want code %d and %q", err, said, tc.code, tc.says)
			}
		})
	}
}

// Every setting has a flag and a variable of its name.
func TestHub_Settings_VariablesAndFlags_AreTheSame(t *testing.T) {
	f := newCommand(nil, nil).Flags()
	for _, s := range config.HubSettings() {
		if f.Lookup(flags.Name(s.Name)) == nil || s.Environment() != "EXECWIRE_HUB_"+strings.ToUpper(s.Name) {
			t.Errorf("%s has no flag, or another variable: %s", s.Name, s.Environment())
		}
	}
	f.VisitAll(func(flag *pflag.Flag) {
		if !flags.IsSetting(flag) && !slices.Contains([]string{"config", "log-format", "log-level", "log-lines"}, flag.Name) {
			t.Errorf("there is --%s, which is no setting", flag.Name)
		}
	})
}

func TestConfig_OfTheHub(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hub.toml")
	if err := os.WriteFile(file, []byte("executors = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) (int, string) {
		var out bytes.Buffer
		code := execute(arguments, &out, &out)
		return code, out.String()
	}
	if code, out := run("config", "print", "--config", file, "--presence-directory", "/p"); code != 0 || !strings.Contains(out, "executors = 5  # "+file+":1\n") ||
		!strings.Contains(out, "presence = \"nats\"  # implied by another setting\npresence_directory = \"/p\"  # --presence-directory\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	// The file has a value, but a flag implies another.
	if err := os.WriteFile(file, []byte("presence = \"memory\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := run("config", "print", "--config", file, "--presence-directory", "/p"); code != 0 || !strings.Contains(out, "presence = \"nats\"  # implied by another setting\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := run("config", "check", file); code != 0 || out != file+": no errors\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if err := os.WriteFile(file, []byte("executers = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := run("config", "check", file); code != 1 || out != file+":1:1: executers is not a setting: did you mean executors? execwire-hub config example lists them\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	for line, want := range map[string]string{
		"--prinipals-file x": "did you mean --principals-file?", "--url-lifetme 1m": "did you mean --url-lifetime?", "--public-url ftp://x": `--public-url cannot be "ftp://x"`,
		"cofig": `"cofig" is not a command: did you mean config?`,
	} {
		if code, out := run(strings.Fields(line)...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", line, code, out)
		}
	}
}
