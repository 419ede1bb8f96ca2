package testproc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func init() {
	register("args", args)
	register("env", env)
	register("status", status)
	register("winsize", winsize)
}

// args prints argv[0] and the arguments after the program's name, as a JSON array.
func args(args []string) int {
	return printJSON(append([]string{os.Args[0]}, args...))
}

// env prints the environment as a JSON array.
func env([]string) int { return printJSON(os.Environ()) }

// Status is the output of the program status, one line of JSON.
type Status struct {
	PID, PPID, PGID, SID int
	Cwd                  string
	Umask                string
	// SignalsBlocked and SignalsIgnored are masks with bit n-1 for signal n. The Go runtime of the
	// program hides some of the inherited state; /bin/cat /proc/self/status shows all of it.
	SignalsBlocked, SignalsIgnored uint64
	// Descriptors maps inherited descriptors to their targets.
	Descriptors map[int]string
	// NonBlocking lists those of 0, 1 and 2 with O_NONBLOCK set.
	NonBlocking []int
	// Terminal, Foreground, Rows and Cols describe stdin, if it is a terminal.
	Terminal   bool
	Foreground int
	Rows, Cols uint16
	// ControllingTerminal is whether /dev/tty can be opened.
	ControllingTerminal bool
}

func status([]string) int {
	s := Status{PID: os.Getpid(), PPID: os.Getppid(), PGID: unix.Getpgrp(), Descriptors: inherited()}
	s.SID, _ = unix.Getsid(0)
	s.Cwd, _ = os.Getwd()
	fields := statusFields()
	s.Umask = fields["Umask"]
	s.SignalsBlocked, _ = strconv.ParseUint(fields["SigBlk"], 16, 64)
	s.SignalsIgnored, _ = strconv.ParseUint(fields["SigIgn"], 16, 64)
	for fd := range 3 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags&unix.O_NONBLOCK != 0 {
			s.NonBlocking = append(s.NonBlocking, fd)
		}
	}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		s.Terminal, s.Rows, s.Cols = true, size.Row, size.Col
		s.Foreground, _ = unix.IoctlGetInt(0, unix.TIOCGPGRP)
	}
	if tty, err := os.Open("/dev/tty"); err == nil {
		s.ControllingTerminal = true
		_ = tty.Close()
	}
	return printJSON(s)
}

func statusFields() map[string]string {
	fields := map[string]string{}
	text, _ := os.ReadFile("/proc/thread-self/status")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// inherited lists the inherited descriptors: those without close-on-exec.
func inherited() map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		found[fd], _ = os.Readlink("/proc/self/fd/" + entry.Name())
	}
	return found
}

// winsize prints "ROWSxCOLS" of its terminal, and again after each SIGWINCH, until the end of its
// input.
func winsize([]string) int {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	}()
	for {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			return fail(err)
		}
		fmt.Printf("%dx%d\n", size.Row, size.Col)
		select {
		case <-changed:
		case <-ended:
			return 0
		}
	}
}

func printJSON(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return fail(err)
	}
	fmt.Println(string(text))
	return 0
}
