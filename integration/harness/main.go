// Package harness has what the packages of integration share: servers in the test
// and in processes of their own, clients of gRPC and JSON-RPC, a proxy that cuts
// connections, and checks of output that is complete and in order. Only test files
// import it.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// StepTimeout limits a step of a test, so that a test does not hang.
const StepTimeout = 2 * time.Minute

// Execwire is the path of the command that was built for the tests.
var Execwire string

// Main runs the tests of a package; each package calls it from its TestMain. It
// starts the helper programs that tests run as themselves, builds the command, and
// reports what the tests left behind.
func Main(m *testing.M) {
	daemon.Main()
	testproc.Main()
	// Without a list of the files that tests open, the go command does not repeat a result: it
	// would although a command that tests run has changed. Nor does it look for links in the
	// path of each, most of them in /proc.
	flag.Parse()
	_ = flag.Set("test.testlogfile", "")
	leakcheck.Main(withCommand{m})
}

// withCommand builds the command before the tests and removes it after them.
type withCommand struct{ *testing.M }

// Run implements leakcheck.Runner.
func (w withCommand) Run() int {
	dir, err := os.MkdirTemp("", "bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	Execwire = filepath.Join(dir, "execwire")
	if err := Build(Execwire, "./cmd/execwire"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return w.M.Run()
}

// Build builds a command of this tree, unless EXECWIRE_TEST_COMMANDS is a directory that
// has it, built like the tests.
func Build(binary, command string) error {
	built := filepath.Join(os.Getenv("EXECWIRE_TEST_COMMANDS"), filepath.Base(command))
	if !filepath.IsAbs(built) || unix.Access(built, unix.X_OK) != nil {
		var err error
		if built, err = build(command); err != nil {
			return err
		}
	}
	// Not by this process: a child that another test starts meanwhile would inherit the
	// open file, and the command could not be executed (ETXTBSY).
	if output, err := exec.Command("cp", built, binary).CombinedOutput(); err != nil {
		return fmt.Errorf("failed to copy %s: %w\n%s", command, err, output)
	}
	return nil
}

// build builds a command and returns its path. The result is kept in .cache, where the Go
// command sees whether it is up to date: linking takes seconds, and every package of
// integration needs the command.
func build(command string) (string, error) {
	cached := filepath.Join("../../.cache/test", variant, filepath.Base(command))
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Dir(cached)+"/lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	out, err := filepath.Abs(cached)
	if err != nil {
		return "", err
	}
	build := exec.Command(buildCommand[0], slices.Concat(buildCommand[1:], []string{"-o", out, command})...)
	build.Dir = "../.."
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("failed to build %s: %w\n%s", command, err, output)
	}
	return out, nil
}

// HubCommand returns the path of the hub's command, and builds it first if needed.
var HubCommand = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(filepath.Dir(Execwire), "execwire-hub")
	return binary, Build(binary, "./cmd/execwire-hub")
})

// ErrTimeout is the cause of a context that ends a test that hangs.
var ErrTimeout = errors.New("the test took too long")

// testTimeout limits a whole test, StepTimeout each step. It is shorter than the
// timeout of go test, so that the test can report where it hangs.
const testTimeout = 5 * time.Minute

// Context returns a context that ends with the test, or when it takes too long.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, ErrTimeout)
	t.Cleanup(cancel)
	return ctx
}

// ContextWithoutTest is Context for helper programs.
func ContextWithoutTest() (context.Context, context.CancelCauseFunc) {
	deadline, stop := context.WithTimeoutCause(context.Background(), StepTimeout, ErrTimeout)
	ctx, cancel := context.WithCancelCause(deadline)
	return ctx, func(cause error) { cancel(cause); stop() }
}

// Eventually polls until holds returns true. what names the condition.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(StepTimeout)
	for pause := 5 * time.Millisecond; !holds(); pause = min(pause+time.Millisecond, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
		time.Sleep(pause) // longer and longer: each look may be a call
	}
}

// Waits marks a test that mostly waits, for cuts, pauses and deadlines. Such tests run
// in parallel, after all others. They may not count anything over the whole process,
// nor depend on free processors.
func Waits(t *testing.T) { t.Parallel() }

// ReferenceVariable has the path of the reference's command: make reference sets it.
const ReferenceVariable = "EXECWIRE_REFERENCE"

// Soak reports whether make soak runs the tests, in which sizes are those of the worst
// case, however long that takes.
func Soak() bool { return os.Getenv("EXECWIRE_SOAK") != "" }

// Slow skips a test in short runs.
func Slow(t testing.TB) {
	t.Helper()
	testrace.Slow(t)
}
