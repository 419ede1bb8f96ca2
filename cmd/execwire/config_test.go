package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigPrint_ShowsValuesAndSources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.toml")
	hash := strings.Repeat("ab", 32)
	if err := os.WriteFile(file, []byte("max_wait = \"2m\"\nws_auth = \"capability-token\"\nws_token_sha256 = \""+hash+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	printed := func(arguments ...string) result {
		t.Helper()
		c := command(t, append([]string{"config", "print", "--config", file, "--executor-id", "a", "--remote", "https://hub"}, arguments...)...)
		c.Env = append(c.Env, "EXECWIRE_MAX_GRACE=90m", "EXECWIRE_MAX_WAIT=3m", "EXECWIRE_MINE=secret")
		got := runCommand(t, c)
		if got.code != 0 || strings.Contains(got.out+got.errOut, hash[:8]) || strings.Contains(got.errOut, "secret") || !strings.Contains(got.errOut, "variable=EXECWIRE_MINE") {
			t.Errorf("%q: exit code %d: %s%s", arguments, got.code, got.out, got.errOut)
		}
		return got
	}
	got := printed()
	for _, line := range []string{
		`listen = ["off"]  # implied by another setting`, `remote = "https://hub"  # --remote`, `executor_name = ""  # default`,
		`max_wait = "3m"  # $EXECWIRE_MAX_WAIT`, `max_grace = "1h30m"  # $EXECWIRE_MAX_GRACE`, `ws_auth = "capability-token"  # ` + file + `:2`,
		`# ws_token_sha256 is set and not printed  # ` + file + `:3`, `message_bytes = "4MiB"  # default`, `requests_per_connection = 1024  # default`,
	} {
		if strings.Count(got.out, line+"\n") != 1 {
			t.Errorf("there is no line %q in %s", line, got.out)
		}
	}
	if got := printed("--json"); !strings.Contains(got.out, `{"name":"max_wait","value":"3m","source":"environment","from":"$EXECWIRE_MAX_WAIT"}`+"\n") ||
		!strings.Contains(got.out, `{"name":"ws_token_sha256","value":null,"source":"file","from":"`+file+`:3"}`+"\n") ||
		!strings.Contains(got.out, `{"name":"executor_labels","value":[],"source":"default"}`+"\n") {
		t.Errorf("the objects are %s", got.out)
	}
	// What is printed is a file, but for what is hidden.
	copied := filepath.Join(dir, "b.toml")
	if err := os.WriteFile(copied, []byte(strings.Replace(got.out, `ws_auth = "capability-token"`, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, command(t, "config", "check", copied)); got.code != 0 || got.out != copied+": no errors\n" {
		t.Errorf("check of what was printed: %+v", got)
	}
	// The file is read once: it may be a pipe.
	piped := command(t, "config", "print", "--config", "/dev/stdin")
	piped.Stdin = strings.NewReader("max_wait = \"2m\"\n")
	if got := runCommand(t, piped); got.code != 0 || !strings.Contains(got.out, "max_wait = \"2m\"  # /dev/stdin:1\n") {
		t.Errorf("of stdin: %+v", got)
	}
	// What serve does not start with, print does not print, with the same error.
	for _, flags := range [][]string{{"--config", file, "--ws-auth", "off"}, {"--ws-auth", "capability-token"}, {"--remote", "https://hub"}} {
		printed, served := runCommand(t, command(t, append([]string{"config", "print"}, flags...)...)), runCommand(t, command(t, append([]string{"serve"}, flags...)...))
		served.errOut = strings.ReplaceAll(served.errOut, "execwire serve --help", "execwire config print --help")
		if printed != served || printed.code == 0 || printed.out != "" {
			t.Errorf("%q: printed %+v, serve %+v", flags, printed, served)
		}
	}
}

// What is meant by a word that is no command is a command.
func TestMeanings_AreCommands(t *testing.T) {
	root := newRootCommand(streams{})
	for word, meant := range root.Annotations {
		if found, _, err := root.Find([]string{word}); err == nil && found != root {
			t.Errorf("%s is a command", word)
		}
		instead := strings.TrimRight(strings.Fields(meant)[1], ",")
		if found, _, err := root.Find([]string{instead}); err != nil || found.Name() != instead {
			t.Errorf("%s: %q names no command", word, meant)
		}
	}
}

func TestConfigCheck_ReportsErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(file, []byte("lisen = []\nmax_wait = \"1x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runCommand(t, command(t, "config", "check", file))
	if want := file + ":1:1: lisen is not a setting: did you mean listen? execwire config example lists them\n" +
		file + ":2:12: max_wait \"1x\" is not a duration; write for example 30s, 1h30m, or a number of seconds\n"; got.code != 1 || got.out != want || got.errOut != "" {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// What is misspelled gets the name that was probably meant.
func TestSuggestions(t *testing.T) {
	for line, want := range map[string]string{
		"serve --lisen tcp://127.0.0.1:0": "unknown flag: --lisen: did you mean --listen?",
		"serve --default-grac 1m":         "did you mean --default-grace?",
		"serve --default-grace 25h":       `invalid argument "25h" for "--default-grace" flag: is above 24h`,
		"serve --max-grace 1s":            "--max-grace is below --default-grace: raise it to at least 30s",
		"config print --ws_auth off":      "did you mean --ws-auth?",
		"ps --severs local:":              "did you mean --server?",
		"rnu true":                        `"rnu" is not a command: did you mean run?`,
		"sessions clsoe 1":                `"clsoe" is not a command: did you mean close?`,
		"config pirnt":                    `"pirnt" is not a command: did you mean print?`,
		"frobnicate":                      `"frobnicate" is not a command` + "\n",
		"config print --frobnicate":       "unknown flag: --frobnicate\n",
	} {
		got := runCommand(t, command(t, strings.Fields(line)...))
		if got.code != 2 || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: got %+v, want %q", line, got, want)
		}
	}
	for _, arguments := range [][]string{{"ps", "--server", "unix:///nonexistent"}, {"executors", "--hub", "unix:///nonexistent"}} {
		c := command(t, arguments...)
		c.Env = append(c.Env, "EXECWIRE_SEVER=secret", "EXECWIRE_DEFAULT_GRACE=1m", "EXECWIRE_MINE=1", "EXECWIRE_HUB_BIN=1", "EXECWIRE_TOKN=secret")
		if got := runCommand(t, c); strings.Count(got.errOut, "warning") != 2 || strings.Contains(got.errOut, "secret") ||
			!strings.Contains(got.errOut, "warning: EXECWIRE_SEVER has no effect: did you mean EXECWIRE_SERVER?") || !strings.Contains(got.errOut, "did you mean EXECWIRE_TOKEN?") {
			t.Errorf("%v with misspelled variables: %+v", arguments, got)
		}
	}
}
