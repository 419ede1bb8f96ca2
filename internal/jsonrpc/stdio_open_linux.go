package jsonrpc

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// OpenStdio returns a transport over the standard input and output of the program,
// which nothing else may use until it is closed. It reopens them, because Close of
// os.Stdin and os.Stdout does not unblock a Read or Write, and a write to a closed pipe
// ends the program. The originals stay open: the peer sees the end of the program.
func OpenStdio(options StdioOptions) (*Stdio, error) {
	in, err := openAgain(os.Stdin, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("failed to open standard input: %w", err)
	}
	out, err := openAgain(os.Stdout, unix.O_WRONLY)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("failed to open standard output: %w", err), in.Close())
	}
	return NewStdio(in, out, options), nil
}

// stream is a file whose Close unblocks a Read or Write.
type stream struct {
	*os.File
	undo  func() // called once by Close
	close sync.Once
}

func (s *stream) Close() (err error) {
	s.close.Do(func() {
		err = s.File.Close()
		s.undo()
	})
	return err
}

// openAgain reopens a file for Go's poller. A pipe or a terminal gets a new description
// with flags of its own. A socket, and a file that cannot be reopened, shares its flags
// with other programs; Close restores them.
func openAgain(file *os.File, access int) (*stream, error) {
	fd := int(file.Fd())
	var about unix.Stat_t
	if err := unix.Fstat(fd, &about); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	again := -1
	switch about.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFCHR:
		again, _ = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), access|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	}
	if again >= 0 {
		return &stream{File: os.NewFile(uintptr(again), file.Name()), undo: func() {}}, nil
	}
	return share(file, fd)
}

func share(file *os.File, fd int) (*stream, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	undo := func() {}
	if flags&unix.O_NONBLOCK == 0 {
		if err := unix.SetNonblock(own, true); err != nil {
			return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(own))
		}
		undo = func() { _ = unix.SetNonblock(fd, false) }
	}
	return &stream{File: os.NewFile(uintptr(own), file.Name()), undo: undo}, nil
}
