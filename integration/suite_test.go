package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goEnvironment is what the go command needs, as it is here.
func goEnvironment(t *testing.T) []string {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "GOFLAGS=-count=1", "GORACE=atexit_sleep_ms=0", "TMPDIR=" + shortDir(t)}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOTOOLCHAIN", "GOPROXY"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// timings are what differs between two runs of the same tests.
var timings = regexp.MustCompile(`\d+\.\d+s`)

// expectSame runs a command line here and through a server, and wants the same
// of both: exit code and, but for timings, output.
func expectSame(t *testing.T, server *command, d door, dir string, env, argv []string) result {
	t.Helper()
	here := &command{Cmd: exec.Command(argv[0], argv[1:]...)}
	here.Dir, here.Env, here.Stderr, here.waited = dir, env, &here.errors, here.Wait
	want := here.complete(t, nil)

	args := server.through(d, "--cwd", dir, "--env-inherit", "none")
	for _, variable := range env {
		args = append(args, "--env", variable)
	}
	got := newCommand(append(append(args, "--"), argv...)...).complete(t, nil)
	for _, r := range []*result{&got, &want} {
		r.stdout, r.stderr = timings.ReplaceAllString(r.stdout, "T"), timings.ReplaceAllString(r.stderr, "T")
	}
	if got != want {
		t.Errorf("%s through %s:\n%+v\nhere:\n%+v", argv, d, got, want)
	}
	return got
}

// A real build and a real test suite do through a server what they do here:
// those of this repository.
func TestARealTestSuiteRunsAsItDoesHere(t *testing.T) {
	slow(t)
	server := serve(t)
	env := goEnvironment(t)
	for _, d := range wires {
		built := filepath.Join(t.TempDir(), "built")
		got := expectSame(t, server, d, repository(t), env, []string{"go", "build", "-o", built, "./cmd/execwire"})
		if _, err := os.Stat(built); err != nil || got.code != 0 {
			t.Errorf("the build left nothing: %v, %+v", err, got)
		}
		got = expectSame(t, server, d, repository(t), env, []string{"go", "test", "-v", "./internal/config", "./internal/observe"})
		if got.code != 0 || strings.Count(got.stdout, "\nok ") != 2 {
			t.Errorf("the tests ended with %+v", got)
		}
	}
}

const failingTest = `package failing

import "testing"

func TestFails(t *testing.T) { t.Error("on purpose") }
`

// So does one that fails, or does not compile.
func TestAFailingTestSuiteFails(t *testing.T) {
	slow(t)
	server := serve(t)
	env := goEnvironment(t)
	dir := shortDir(t)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module failing\n\ngo 1.26\n")
	write("failing_test.go", failingTest)
	got := expectSame(t, server, unixDoor, dir, env, []string{"go", "test", "./..."})
	if got.code != 1 || !strings.Contains(got.stdout, "on purpose") {
		t.Errorf("a failing test ended with %+v", got)
	}
	write("broken.go", "package failing\n\nfunc broken() int {}\n")
	got = expectSame(t, server, tcpDoor, dir, env, []string{"go", "vet", "./..."})
	if got.code != 1 || !strings.Contains(got.stderr, "missing return") {
		t.Errorf("code that does not compile ended with %+v", got)
	}
}
