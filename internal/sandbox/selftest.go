package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// selfTest is an action that a sandboxed process attempts.
type selfTest struct {
	name    string
	allowed bool
	run     func(dir string, server int) error
}

// selfTests exercise each part of a sandbox. A backend for which one has an unexpected
// result is not used.
var selfTests = []selfTest{
	{name: "write where it may", allowed: true, run: func(dir string, _ int) error {
		return os.WriteFile(filepath.Join(dir, "inside", "file"), []byte("x"), 0o600)
	}},
	{name: "read where it may", allowed: true, run: func(dir string, _ int) error {
		_, err := os.ReadFile(filepath.Join(dir, "outside"))
		return err
	}},
	{name: "write elsewhere", run: func(dir string, _ int) error {
		return os.WriteFile(filepath.Join(dir, "outside"), []byte("x"), 0o600)
	}},
	{name: "change a mode elsewhere", run: func(dir string, _ int) error {
		return os.Chmod(filepath.Join(dir, "outside"), 0o644)
	}},
	{name: "make a unix socket", run: func(string, int) error { return makeSocket(unix.AF_UNIX, unix.SOCK_STREAM) }},
	{name: "make an internet socket", run: func(string, int) error { return makeSocket(unix.AF_INET, unix.SOCK_DGRAM) }},
	{name: "signal the server", run: func(_ string, server int) error { return unix.Kill(server, 0) }},
	{name: "read the server's environment", run: func(_ string, server int) error {
		_, err := os.ReadFile("/proc/" + strconv.Itoa(server) + "/environ")
		return err
	}},
	{name: "make a namespace", run: func(string, int) error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{name: "use io_uring", run: func(string, int) error {
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
		if errno == unix.EPERM {
			return errno
		}
		return nil // it was not refused
	}},
}

func makeSocket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// Main runs the self-tests and exits if the command line requests them. Otherwise it
// returns. The main function of a program with [Sandboxes] must call it first.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != selfTestCommand {
		return
	}
	server, err := strconv.Atoi(os.Args[3])
	if err != nil {
		unix.Exit(2)
	}
	could := map[string]bool{}
	for _, t := range selfTests {
		could[t.name] = t.run(os.Args[2], server) == nil
	}
	if json.NewEncoder(os.Stdout).Encode(could) != nil {
		unix.Exit(1)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the server has received that
	unix.Exit(0)                          // with the race detector os.Exit waits for a second
}
