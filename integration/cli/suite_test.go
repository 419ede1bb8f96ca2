package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// timings matches what differs between two runs of the same tests.
var timings = regexp.MustCompile(`\d+\.\d+s`)

// expectSame runs a command line locally and through a server, and compares exit code and
// output, except for timings.
func expectSame(t *testing.T, server *harness.Command, d harness.Transport, dir string, env, argv []string) harness.Result {
	t.Helper()
	here := &harness.Command{Cmd: exec.Command(argv[0], argv[1:]...)}
	here.Dir, here.Env, here.Stderr, here.Waited = dir, env, &here.Errors, here.Wait
	want := here.Complete(t, nil)

	args := server.Through(d, "--cwd", dir, "--env-inherit", "none")
	for _, variable := range env {
		args = append(args, "--env", variable)
	}
	got := harness.NewCommand(append(append(args, "--"), argv...)...).Complete(t, nil)
	for _, r := range []*harness.Result{&got, &want} {
		r.Stdout, r.Stderr = timings.ReplaceAllString(r.Stdout, "T"), timings.ReplaceAllString(r.Stderr, "T")
	}
	if got != want {
		t.Errorf("%s through %s:\n%+v\nhere:\n%+v", argv, d, got, want)
	}
	return got
}

// A build and a test suite of this repository give the same result through a server as
// locally. The tests of the suite run in the same order each time: none ranges over a map.
func TestRun_RealTestSuite_SameResult(t *testing.T) {
	harness.Slow(t)
	server := harness.Serve(t)
	env := harness.GoEnvironment(t)
	transports := harness.NetworkTransports
	if testing.Short() {
		transports = transports[1:]
	}
	for _, d := range transports {
		built := filepath.Join(t.TempDir(), "built")
		got := expectSame(t, server, d, harness.Repository(t), env, []string{"go", "build", "-o", built, "./internal/testprograms"})
		if _, err := os.Stat(built); err != nil || got.Code != 0 {
			t.Errorf("the build left nothing: %v, %+v", err, got)
		}
		got = expectSame(t, server, d, harness.Repository(t), env, []string{"go", "test", "-v", "./internal/backoff", "./internal/notify"})
		if got.Code != 0 || strings.Count(got.Stdout, "\nok ") != 2 {
			t.Errorf("the tests ended with %+v", got)
		}
	}
}

const failingTest = `package failing

import "testing"

func TestFails(t *testing.T) { t.Error("on purpose") }
`

// So does a build or a test that fails.
func TestRun_FailingTestSuite_Fails(t *testing.T) {
	harness.Slow(t)
	server := harness.Serve(t)
	env := harness.GoEnvironment(t)
	dir := harness.ShortDir(t)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module failing\n\ngo 1.26\n")
	write("failing_test.go", failingTest)
	got := expectSame(t, server, harness.UnixTransport, dir, env, []string{"go", "test", "./..."})
	if got.Code != 1 || !strings.Contains(got.Stdout, "on purpose") {
		t.Errorf("a failing test ended with %+v", got)
	}
	write("broken.go", "package failing\n\nfunc broken() int {}\n")
	got = expectSame(t, server, harness.TCPTransport, dir, env, []string{"go", "vet", "./..."})
	if got.Code != 1 || !strings.Contains(got.Stderr, "missing return") {
		t.Errorf("code that does not compile ended with %+v", got)
	}
}
