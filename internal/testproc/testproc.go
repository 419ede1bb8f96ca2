// Package testproc has small programs, well-behaved and hostile, that tests run as real processes.
// They are part of the test binary: TestMain calls Main first, and Argv returns the command line of
// a program. If EXECWIRE_TEST_PROGRAMS is set, as make does, the programs of this package itself are
// those of that binary, because a test binary with the race detector takes long to start.
package testproc

import (
	"fmt"
	"os"
	"syscall"
)

// programArgument is the first argument of a test binary that runs a program of this package.
const programArgument = "execwire-testproc"

// NoRaceExitDelay is for programs that do not inherit the environment of the test: with the race
// detector they would wait for a second before they exit.
const NoRaceExitDelay = "GORACE=atexit_sleep_ms=0"

// Program gets the arguments after its name and returns the exit code.
type Program func(args []string) int

var programs = map[string]Program{}

// binaryVariable is the path of command testprograms.
const binaryVariable = "EXECWIRE_TEST_PROGRAMS"

// own are the programs of this package. TestMain and its package may register others.
var own = map[string]bool{}

// Register adds a program. Call it in an init function or before Main. It panics if the name is
// taken.
func Register(name string, program Program) {
	if _, taken := programs[name]; taken {
		panic("testproc: program registered twice: " + name)
	}
	programs[name] = program
}

// register adds a program of this package.
func register(name string, program Program) {
	Register(name, program)
	own[name] = true
}

// Main runs the program that the command line names and exits with its code. It returns if the
// command line names none. Call it first in TestMain.
func Main() {
	if len(os.Args) < 3 || os.Args[1] != programArgument {
		return
	}
	program, ok := programs[os.Args[2]]
	if !ok {
		fmt.Fprintf(os.Stderr, "testproc: no program named %q\n", os.Args[2])
		syscall.Exit(125)
	}
	syscall.Exit(program(os.Args[3:])) // os.Exit waits a second with the race detector
}

// Argv returns the command line of a program. The first element is an absolute path.
func Argv(name string, args ...string) []string {
	binary := os.Getenv(binaryVariable)
	if binary == "" || !own[name] {
		var err error
		if binary, err = os.Executable(); err != nil {
			panic("testproc: failed to find the test binary: " + err.Error())
		}
	}
	return append([]string{binary, programArgument, name}, args...)
}

// fail reports an error of a program, with a code that no test expects.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "testproc:", err)
	return 124
}
