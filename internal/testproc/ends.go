package testproc

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"
)

func init() {
	register("exit", exit)
	register("signal-self", signalSelf)
	register("ignore-term", ignoreTerm)
	register("trap-term", trapTerm)
	register("tree", tree)
	register("sleep", func([]string) int { return pause() })
}

// exit N exits with code N.
func exit(args []string) int {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return fail(err)
	}
	return code
}

// signal-self N is killed by signal N. A shell sends it, because Go turns some signals into panics;
// without a core file.
func signalSelf(args []string) int {
	return fail(unix.Exec("/bin/sh", []string{"sh", "-c", "ulimit -c 0; kill -" + args[0] + " $$"}, os.Environ()))
}

// ignore-term prints "ready" and ignores SIGTERM, SIGINT and SIGHUP.
func ignoreTerm([]string) int {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	fmt.Println("ready")
	return pause()
}

// trap-term prints "ready"; on SIGTERM it prints "terminated" and exits with code 7.
func trapTerm([]string) int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM)
	fmt.Println("ready")
	<-terminated
	fmt.Println("terminated")
	return 7
}

// tree N starts N children in its own process group that hold no pipes, prints "ready" and their
// PIDs in one line, and waits. With a second argument "leave" it exits with code 0 instead.
func tree(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return fail(err)
	}
	line := "ready"
	for range n {
		argv := Argv("sleep")
		child := exec.Command(argv[0], argv[1:]...)
		if err := child.Start(); err != nil {
			return fail(err)
		}
		line += " " + strconv.Itoa(child.Process.Pid)
	}
	fmt.Println(line)
	if len(args) > 1 && args[1] == "leave" {
		return 0
	}
	return pause()
}
