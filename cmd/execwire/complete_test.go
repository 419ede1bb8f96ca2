package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// completionTimeoutVariable changes how long a completion may take. The default is too short
// for a test on a busy machine.
const (
	completionTimeoutVariable = "EXECWIRE_TEST_COMPLETION_TIMEOUT"
	longCompletion            = completionTimeoutVariable + "=2m"
)

// completion returns the words that a shell would get, and the directive.
func completion(t *testing.T, variables []string, arguments ...string) string {
	t.Helper()
	c := command(t, append([]string{"__complete"}, arguments...)...)
	c.Env = append(append(c.Env, longCompletion), variables...)
	got := runCommand(t, c)
	if got.code != 0 || strings.Count(got.errOut, "\n") != 1 { // cobra prints the directive
		t.Errorf("%q: %+v", arguments, got)
	}
	return got.out
}

func TestComplete_WordsOfTheServer(t *testing.T) {
	t.Parallel()
	s := startServerWith(t, []string{"EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s"}, "unix://"+t.TempDir()+"/s")
	server := []string{"EXECWIRE_SERVER=" + s.urls[0]}
	for _, id := range []string{"alpha", "alps", "beta"} {
		if got := runCommand(t, command(t, "run", "--server", s.urls[0], "--detach", "--id", id, "--", "sleep", "1000")); got.code != 0 {
			t.Fatal(got)
		}
	}
	if got := runCommand(t, command(t, "kill", "--force", "--server", s.urls[0], "beta")); got.code != 0 {
		t.Fatal(got)
	}
	// kill returns when the processes have ended, but it may not have closed yet.
	if got := runCommand(t, command(t, "wait", "--closed", "--server", s.urls[0], "beta")); got.code != 128+9 {
		t.Fatal(got)
	}
	root := t.TempDir()
	for _, name := range []string{"apple pie.txt", "apricot/core", ".hidden", "line\nbreak", "b:c"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const none, noSpace = ":4\n", ":6\n"
	for _, test := range []struct {
		line []string
		want string
	}{
		{[]string{"kill", "al"}, "alpha\tsleep 1000\nalps\tsleep 1000\n" + none},
		{[]string{"kill", "alpha", "al"}, "alps\tsleep 1000\n" + none},
		{[]string{"kill", "b"}, none},
		{[]string{"logs", "b"}, "beta\tsleep 1000\n" + none},
		{[]string{"logs", "beta", ""}, none},
		{[]string{"attach", "alp"}, "alpha\tsleep 1000\nalps\tsleep 1000\n" + none},
		{[]string{"wait", "--session", "nobody", ""}, none},
		{[]string{"ls", root + "/ap"}, root + "/apple pie.txt\n" + root + "/apricot/\n" + noSpace},
		{[]string{"ls", ":" + root + "/apr"}, ":" + root + "/apricot/\n" + noSpace},
		{[]string{"cat", root + "/apricot/"}, root + "/apricot/core\n" + none},
		{[]string{"cat", root + "/.h"}, root + "/.hidden\n" + none},
		{[]string{"cat", root + "/"}, root + "/apple pie.txt\n" + root + "/apricot/\n" + root + "/b:c\n" + noSpace},
		{[]string{"cat", root + "/b:"}, root + "/b:c\n" + none},
		{[]string{"cat", root + "/nothing/"}, none},
		{[]string{"cp", ":" + root + "/apri"}, ":" + root + "/apricot/\n" + noSpace},
		{[]string{"cp", root + "/apri"}, ":0\n"},
		{[]string{"ps", ""}, none},
		{[]string{"completion", "z"}, "zsh\n" + none},
	} {
		if got := completion(t, server, test.line...); got != test.want {
			t.Errorf("%q: got %q, want %q", test.line, got, test.want)
		}
	}
	// Of this server, not of the one in the variable.
	if got := completion(t, server, "kill", "--server", "unix:///nonexistent", ""); got != none {
		t.Errorf("of a server that does not answer: %q", got)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if got := completion(t, []string{completionTimeoutVariable + "=100ms"}, "ls", "--server", "tcp://"+silent.Addr().String(), root+"/"); got != none {
		t.Errorf("of a server that is silent: %q", got)
	}
	for _, url := range []string{"local:", "stdio:touch " + root + "/started"} {
		if got := completion(t, nil, "ls", "--server", url, root+"/"); got != none {
			t.Errorf("of %s: %q", url, got)
		}
	}
	if _, err := os.Stat(root + "/started"); err == nil {
		t.Error("a completion started a server")
	}
	completeInBash(t, s.urls[0], root)
}

// completeInBash types lines with TAB in an interactive bash with bash-completion, where the
// script that the command prints completes them.
func completeInBash(t *testing.T, url, root string) {
	t.Helper()
	c := command(t)
	setup := filepath.Join(c.Dir, "setup")
	if err := os.WriteFile(setup, []byte(`source /usr/share/bash-completion/bash_completion
execwire() {
	case $1 in
	__complete | completion) "`+c.Path+`" "$@" ;;
	*) printf '<%s>' "$@" ;;
	esac
}
source <(execwire completion bash)
`), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := []string{"kill alph\t", "cp :" + root + "/apri\tco\t .", "ls " + root + "/appl\t", "completion f\t >/dev/null; echo \"<$_>\"", "kill --server unix:///nonexistent alph\t"}
	// script(1) is a terminal for it.
	shell := exec.Command("script", "--quiet", "--return", "--command", "bash --noprofile --rcfile "+setup+" -i", "/dev/null")
	shell.Dir, shell.Env = c.Dir, append(c.Env, longCompletion, "EXECWIRE_SERVER="+url, "TERM=dumb", "PS1=", "SHELL=/bin/bash")
	shell.Stdin = strings.NewReader("execwire " + strings.Join(lines, "; echo\nexecwire ") + "; echo\nexit\n")
	got := runCommand(t, shell)
	for _, want := range []string{"<kill><alpha>", "<cp><:" + root + "/apricot/core><.>", "<ls><" + root + "/apple pie.txt>", "<fish>", "<kill><--server><unix:///nonexistent><alph>"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("in bash: there is no %q in %q, %q", want, got.out, got.errOut)
		}
	}
}

func TestComplete_Executors(t *testing.T) {
	t.Parallel()
	url, _ := fakeHub(t, http.StatusOK, `{"executors":[{"id":"build-1","name":"Big\u001b one"},{"id":"build-2"},{"id":"bad\u001b"},{"id":"test"}]}`)
	for _, line := range [][]string{{"ps", "--hub", url, "--executor", "b"}, {"preview", "--hub", url, "--executor", "b"}} {
		if got := completion(t, nil, line...); got != "build-1\tBig  one\nbuild-2\n:4\n" {
			t.Errorf("%q: %q", line, got)
		}
	}
	if got := completion(t, nil, "ps", "--executor", "b"); got != ":4\n" {
		t.Errorf("without a hub: %q", got)
	}
	url, _ = fakeHub(t, http.StatusForbidden, `{}`)
	if got := completion(t, []string{hubVariable + "=" + url}, "ps", "--executor", "b"); got != ":4\n" {
		t.Errorf("of a hub that refuses: %q", got)
	}
}
