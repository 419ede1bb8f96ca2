package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage is the environment of one attempt.
type stage struct {
	Base   string // the working directory, which has the sockets
	Dir    string // has inside, which is writable, and outside, which is only readable
	Server int    // the pid of who started it
	Secret uint64 // where in the server's memory a secret is
	File   int    // a descriptor of the server's, open on a file with the secret, that passes through exec
	TCP    int    // the port of a listener
	UDP    int
	Path   string // of a stream socket, relative to Base
	Packet string // of a datagram socket, too
	Name   string // of an abstract stream socket
	Queue  string // the name of a message queue
	Shared int    // the number of a segment of shared memory
	Setuid string // the path of this program, owned by root and with the set-user-id bit
	Cgroup string // a control group
	Pty    string // the path of a terminal of the server's
}

const secret = "the server's secret"

func (s stage) outside() string { return filepath.Join(s.Dir, "outside", "file") }
func (s stage) inside() string  { return filepath.Join(s.Dir, "inside", "file") }

func (s stage) proc(name string) string { return filepath.Join("/proc", strconv.Itoa(s.Server), name) }

// attempt is an action that a sandbox must prevent, and that succeeds without one.
type attempt struct {
	make func(stage) error
	// root: only root succeeds without a sandbox; ordinary: only for an ordinary user
	// it is an escape.
	root, ordinary bool
	// absent, if not empty, is in the error where the kernel does not have what the attempt needs.
	absent string
}

func write(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("x")
	return errors.Join(err, file.Close())
}

// reading has a file open for reading.
func reading(path string, do func(fd int) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return do(int(file.Fd()))
}

// wants is an error unless the secret is there.
func wants(content []byte, err error) error {
	if err == nil && !strings.Contains(string(content), secret) {
		err = fmt.Errorf("the secret is not in %q", content)
	}
	return err
}

func system(call uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0, 0, 0, 0)
	_, _, errno := unix.Syscall6(call, args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func withSocket(domain, kind, protocol int, do func(fd int) error) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return do(fd)
}

func loopback(port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

func connectTo(address unix.Sockaddr) func(int) error {
	return func(fd int) error { return unix.Connect(fd, address) }
}

// namespaces are those that the user may make.
func namespaces(flags uintptr) uintptr {
	if os.Geteuid() != 0 {
		flags |= unix.CLONE_NEWUSER
	}
	return flags
}

func forkWith(flags uintptr) error {
	command := exec.Command("/bin/true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return command.Run()
}
