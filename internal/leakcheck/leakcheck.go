// Package leakcheck fails a test run that leaks goroutines, descriptors, child processes or
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

// leakTimeout is how long leftovers may take to disappear. The last steps of a goroutine, a
// descriptor or a child are not ordered with the end of the test that caused them. Package process
// closes some descriptors after a look at all processes, of which one may take a fiftieth of the
// time: on a busy machine seconds pass between two.
var leakTimeout = 20 * time.Second

// Runner is the part of *testing.M that Main needs.
type Runner interface{ Run() int }

// Main runs the tests of a package and exits: with the code of the tests if they failed, with 1 and
// a listing on standard error if they passed and leaked something, otherwise with 0. During the run
// TMPDIR is a new directory that has to be empty at the end.
//
// Programs that tests start do not ignore the signals of a terminal, even if the run was started by
// nohup or in the background of a script, and exit without delay even if they are built with the
// race detector.
func Main(m Runner) { os.Exit(run(m)) }

func run(m Runner) int {
	temp, err := freshTempDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leakcheck: failed to prepare the temporary directory:", err)
		return 1
	}
	defer os.RemoveAll(temp)
	handleIgnoredSignals()
	if err := disableRaceExitDelay(); err != nil {
		fmt.Fprintln(os.Stderr, "leakcheck: failed to set the environment:", err)
		return 1
	}
	before := takeSnapshot()
	if code := m.Run(); code != 0 {
		return code // a failed test leaks: a listing would hide the failure
	}
	if err := errors.Join(before.compare(), leftoverFiles(temp)); err != nil {
		fmt.Fprintf(os.Stderr, "leakcheck: the tests passed and leaked:\n%v\n", err)
		return 1
	}
	return 0
}

// handleIgnoredSignals handles, and drops, the signals of a terminal that this process was started
// to ignore. An ignored signal stays ignored through exec; a handled one is reset to the default,
// which programs under test rely on.
func handleIgnoredSignals() {
	dropped := make(chan os.Signal, 1) // never read: package os/signal does not block
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(dropped, sig)
		}
	}
}

// disableRaceExitDelay saves the second that the race detector waits at each exit of a program. A
// test that gives a program its own environment has to set the variable there.
func disableRaceExitDelay() error {
	return os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
}

// Check fails t if, after t and its other cleanups, there are goroutines, descriptors or children
// that did not exist when Check was called. Call it first, and not in parallel tests, which would
// be blamed for each other.
func Check(t testing.TB) {
	t.Helper()
	before := takeSnapshot()
	t.Cleanup(func() {
		if err := before.compare(); err != nil {
			t.Errorf("leaked:\n%v", err)
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

// compare waits up to leakTimeout for everything newer than the snapshot to disappear, and returns
// an error that lists the rest.
func (s snapshot) compare() error {
	deadline := time.Now().Add(leakTimeout)
	return errors.Join(s.waitGoroutines(deadline),
		waitGone(deadline, "descriptor", s.descriptors, descriptors),
		waitGone(deadline, "child process", s.children, children))
}

func (s snapshot) waitGoroutines(deadline time.Time) error {
	for {
		err := goleak.Find(s.goroutines) // retries for about half a second
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("goroutines: %w", err)
		}
	}
}

func waitGone(deadline time.Time, what string, before map[string]string, now func() map[string]string) error {
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
