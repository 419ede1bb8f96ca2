package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// trialSocket is where somebody listens in the directory of a trial.
const trialSocket = "socket"

// trial is something that a probe tries inside.
type trial struct {
	name    string
	allowed bool
	attempt func(dir string, server int) error
}

// trials show each part of a sandbox at work. A backend that lets one of them through, or refuses what it must not,
// is not used.
var trials = []trial{
	{name: "write where it may", allowed: true, attempt: func(dir string, _ int) error {
		return os.WriteFile(filepath.Join(dir, "inside", "file"), []byte("x"), 0o600)
	}},
	{name: "read where it may", allowed: true, attempt: func(dir string, _ int) error {
		_, err := os.ReadFile(filepath.Join(dir, "outside"))
		return err
	}},
	{name: "write elsewhere", attempt: func(dir string, _ int) error {
		return os.WriteFile(filepath.Join(dir, "outside"), []byte("x"), 0o600)
	}},
	{name: "change a mode elsewhere", attempt: func(dir string, _ int) error {
		return os.Chmod(filepath.Join(dir, "outside"), 0o644)
	}},
	{name: "connect to a socket", attempt: func(dir string, _ int) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := os.Chdir(dir); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: trialSocket})
	}},
	{name: "reach the network", attempt: func(string, int) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}},
	{name: "signal the server", attempt: func(_ string, server int) error { return unix.Kill(server, 0) }},
	{name: "read the server's environment", attempt: func(_ string, server int) error {
		_, err := os.ReadFile("/proc/" + strconv.Itoa(server) + "/environ")
		return err
	}},
	{name: "make a namespace", attempt: func(string, int) error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{name: "use io_uring", attempt: func(string, int) error {
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
		if errno == unix.EPERM {
			return errno
		}
		return nil // whatever else it says, nobody has refused it
	}},
}

// Main tries what a confined program must not do, if the command line says so, and ends the process. Otherwise it
// returns. A program that calls [Probe] calls it first.
func Main() {
	if len(os.Args) != 4 || os.Args[1] != trialVerb {
		return
	}
	server, err := strconv.Atoi(os.Args[3])
	if err != nil {
		unix.Exit(2)
	}
	could := map[string]bool{}
	for _, t := range trials {
		could[t.name] = t.attempt(os.Args[2], server) == nil
	}
	if json.NewEncoder(os.Stdout).Encode(could) != nil {
		unix.Exit(1)
	}
	unix.Exit(0) // with the race detector os.Exit waits for a second
}
