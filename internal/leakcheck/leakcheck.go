// Package leakcheck fails a test run that leaves something behind: goroutines, descriptors, child processes or
// temporary files. Every package's TestMain ends in Main.
package leakcheck

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long leftovers may take to go away by themselves: the last steps of a goroutine, a descriptor or a
// child are not ordered with the end of the test that caused them.
const patience = 2 * time.Second

// Runner is the part of *testing.M that Main needs.
type Runner interface{ Run() int }

// Main runs the tests of a package and ends the program: with the tests' own exit code if they failed, with 1 and a
// listing on standard error if they passed and left something behind, with 0 otherwise. It never returns. For the
// length of the run TMPDIR is a fresh directory that has to be empty at the end.
// Programs that tests start do not ignore the signals of a terminal, even if the
// run itself was started by nohup or in the background of a script, and exit at
// once though they be built with the race detector.
func Main(m Runner) { os.Exit(run(m)) }

func run(m Runner) int {
	temp, err := freshTempDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leakcheck: failed to prepare the temporary directory:", err)
		return 1
	}
	defer os.RemoveAll(temp)
	heedSignals()
	if err := exitPromptly(); err != nil {
		fmt.Fprintln(os.Stderr, "leakcheck: failed to set the environment:", err)
		return 1
	}
	before := takeSnapshot()
	if code := m.Run(); code != 0 {
		return code // a failed test leaves things behind: listing them would hide the failure
	}
	if err := errors.Join(before.compare(), leftoverFiles(temp)); err != nil {
		fmt.Fprintf(os.Stderr, "leakcheck: the tests passed and left something behind:\n%v\n", err)
		return 1
	}
	return 0
}

// heedSignals handles, by dropping them, the signals of a terminal that this
// process was started to ignore. What is ignored stays so through exec; what is
// handled becomes the default, which programs under test count on.
func heedSignals() {
	dropped := make(chan os.Signal, 1) // never read: delivery drops what has no room
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(dropped, sig)
		}
	}
}

// exitPromptly spares the programs that tests start the second for which the race
// detector waits at each exit for races of other goroutines. Who gives a program
// an environment of its own sets the variable there.
func exitPromptly() error {
	return os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
}

// Check fails t if, when t and its other cleanups are over, there are goroutines, descriptors or children that were
// not there when Check was called. Call it first; not for parallel tests, which would be blamed for each other.
func Check(t testing.TB) {
	t.Helper()
	before := takeSnapshot()
	t.Cleanup(func() {
		if err := before.compare(); err != nil {
			t.Errorf("left behind:\n%v", err)
		}
	})
}

type snapshot struct {
	goroutines  goleak.Option
	descriptors map[string]string
	children    map[string]string
}

func takeSnapshot() snapshot {
	return snapshot{goroutines: goleak.IgnoreCurrent(), descriptors: descriptors(), children: children()}
}

// compare waits up to patience for everything that came after the snapshot to go, and returns an error listing what
// did not.
func (s snapshot) compare() error {
	deadline := time.Now().Add(patience)
	return errors.Join(s.settleGoroutines(deadline),
		settle(deadline, "descriptor", s.descriptors, descriptors),
		settle(deadline, "child process", s.children, children))
}

func (s snapshot) settleGoroutines(deadline time.Time) error {
	for {
		err := goleak.Find(s.goroutines) // retries for about half a second by itself
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("goroutines: %w", err)
		}
	}
}

func settle(deadline time.Time, what string, before map[string]string, now func() map[string]string) error {
	for {
		left := added(before, now())
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s left: %s", what, strings.Join(left, "\n\t"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
