// Package testproc is a box of small programs, plain and hostile, that tests run as real processes. They live in the
// test binary itself: TestMain calls Main first, and Argv gives the command line that makes the binary such a program.
package testproc

import (
	"fmt"
	"os"
	"syscall"
)

// marker is the argument that turns a test binary into a program of this package.
const marker = "execwire-testproc"

// PromptExit is for the environment of a program that gets nothing of the test's: with the race detector it would wait
// for a second before it exits.
const PromptExit = "GORACE=atexit_sleep_ms=0"

// Program is one program: it gets the arguments after its name and returns the exit code.
type Program func(args []string) int

var programs = map[string]Program{}

// Register adds a program. Call it in an init function or before Main; a name that is taken is a mistake and panics.
func Register(name string, program Program) {
	if _, taken := programs[name]; taken {
		panic("testproc: program registered twice: " + name)
	}
	programs[name] = program
}

// Main runs the program that the command line names and ends the process with its exit code. If the command line
// names none it returns, and the binary is a test again. Call it first in TestMain.
func Main() {
	if len(os.Args) < 3 || os.Args[1] != marker {
		return
	}
	program, ok := programs[os.Args[2]]
	if !ok {
		fmt.Fprintf(os.Stderr, "testproc: no program named %q\n", os.Args[2])
		syscall.Exit(125)
	}
	syscall.Exit(program(os.Args[3:])) // os.Exit waits a second with the race detector, whatever the environment lacks
}

// Argv returns the command line of a program. Its first element is the absolute path of the test binary.
func Argv(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic("testproc: failed to find the test binary: " + err.Error())
	}
	return append([]string{self, marker, name}, args...)
}

// fail reports a program's own trouble, in a code no test expects.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "testproc:", err)
	return 124
}
