// Package integration shows the promises of execwire through public surfaces
// only: services behind every door, the client, and the command as users have
// it. Nothing here knows how a promise is kept.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
)

// patience guards against hanging; no test waits for it to pass.
const patience = 2 * time.Minute

// execwire is the path of the command, built from this tree.
var execwire string

func TestMain(m *testing.M) {
	daemon.Main()
	testproc.Main()
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
	execwire = filepath.Join(dir, "execwire")
	if err := build(execwire, "./cmd/execwire"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return w.M.Run()
}

// build builds a command of this tree.
func build(binary, command string) error {
	build := exec.Command(buildCommand[0], slices.Concat(buildCommand[1:], []string{"-o", binary, command})...)
	build.Dir = ".."
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to build %s: %w\n%s", command, err, said)
	}
	return nil
}

// hubCommand is the path of the hub's command, which is built when a test needs
// it: few do.
var hubCommand = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(filepath.Dir(execwire), "execwire-hub")
	return binary, build(binary, "./cmd/execwire-hub")
})

var errTooLong = errors.New("the test took too long")

// testPatience guards whole tests, which do as much as ten thousand things: each
// step has patience, and all of them together this. It is below what go test
// gives a package, so that the test can say where it hangs.
const testPatience = 5 * time.Minute

// testContext ends when the test does, or takes too long.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), testPatience, errTooLong)
	t.Cleanup(cancel)
	return ctx
}

// withPatience is for programs that have no test.
func withPatience() (context.Context, context.CancelCauseFunc) {
	deadline, stop := context.WithTimeoutCause(context.Background(), patience, errTooLong)
	ctx, cancel := context.WithCancelCause(deadline)
	return ctx, func(cause error) { cancel(cause); stop() }
}

// eventually polls until holds does. what completes "waited in vain until".
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// waits lets a test wait, for cuts, pauses and deadlines, beside others that do so
// too, after all tests that have the processors to themselves. What it shows may
// neither be counted over this whole program nor come too late for a processor.
func waits(t *testing.T) { t.Parallel() }

// slow leaves a test to the run of all tests.
func slow(t testing.TB) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
}
