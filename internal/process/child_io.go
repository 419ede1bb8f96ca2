package process

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/procfs"
)

// childIO connects a child: its three descriptors, and the ends of this program.
type childIO struct {
	childFDs [3]int // blocking; all the same for a terminal

	stdin    *os.File // nil: /dev/null or a terminal
	stdout   *os.File
	stderr   *os.File
	terminal *os.File // the master; then the others are nil
}

// openChildIO opens the descriptors for spec. On failure it leaves none open.
func openChildIO(spec *Spec) (cio *childIO, err error) {
	cio = &childIO{childFDs: [3]int{-1, -1, -1}}
	defer func() {
		if err != nil {
			cio.closeAll()
		}
	}()
	if spec.Terminal != nil {
		err = cio.openTerminal(spec.Terminal.WithDefaults())
	} else {
		err = cio.openPipes(spec.PipeStdin)
	}
	if err == nil && credential(spec.User) != nil {
		err = cio.giveTo(*spec.User)
	}
	return cio, err
}

// giveTo makes a user the owner of the terminal or the pipes, who can then open them again, as
// /dev/stdout or /dev/tty.
func (cio *childIO) giveTo(u osuser.User) error {
	for i, fd := range cio.childFDs {
		if i == 0 && cio.stdin == nil && cio.terminal == nil {
			continue // /dev/null
		}
		if err := unix.Fchown(fd, int(u.UID), -1); err != nil {
			return userUnavailable(u, err)
		}
	}
	return nil
}

func (cio *childIO) openPipes(stdin bool) error {
	var err error
	if stdin {
		cio.childFDs[0], cio.stdin, err = openPipe("stdin", 1)
	} else {
		// Not shared between children, because flags and locks belong to the open file.
		cio.childFDs[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return resourceError("stdin", err)
	}
	if cio.childFDs[1], cio.stdout, err = openPipe("stdout", 0); err != nil {
		return resourceError("stdout", err)
	}
	if cio.childFDs[2], cio.stderr, err = openPipe("stderr", 0); err != nil {
		return resourceError("stderr", err)
	}
	return nil
}

// openPipe creates a pipe. parentEnd is 0 if the child writes to it, and 1 if it reads.
func openPipe(name string, parentEnd int) (child int, file *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	file, err = pollable(p[parentEnd], name)
	return p[1-parentEnd], file, err
}

// pollable registers fd with the poller of the runtime. It takes ownership of fd, also on failure.
func pollable(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	// os.NewFile does not report that the poller refuses the descriptor. Every read would fail
	// then.
	if err := file.SetDeadline(noDeadline); err != nil {
		_ = file.Close()
		return nil, errors.Join(unix.ENOSPC, err) // epoll fails only because of limits
	}
	return file, nil
}

func (cio *childIO) openTerminal(size WindowSize) error {
	master, slave, err := pty.Open()
	if err != nil {
		return resourceError("terminal", err)
	}
	// pty.Open leaves the master blocking, so a new duplicate is registered with the poller. Fd
	// makes the slave blocking again.
	defer master.Close()
	defer slave.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return resourceError("terminal", err)
	}
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return resourceError("terminal", err)
	}
	if cio.terminal, err = pollable(fd, "terminal"); err != nil {
		return resourceError("terminal", err)
	}
	tty, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return resourceError("terminal", err)
	}
	cio.childFDs = [3]int{tty, tty, tty}
	return nil
}

// streamIDs returns the files that identify descendants of the child. Both ends of a pipe have the
// same ID.
func (cio *childIO) streamIDs() (streams []procfs.FileID) {
	for i, fd := range cio.childFDs {
		if i == 0 && cio.stdin == nil && cio.terminal == nil {
			continue // /dev/null identifies no process
		}
		if id, ok := procfs.IdentifyFile(fd); ok && !slices.Contains(streams, id) {
			streams = append(streams, id)
		}
	}
	return streams
}

// closeChildFDs closes the descriptors of the child after the fork. A stream cannot end while this
// program holds one.
func (cio *childIO) closeChildFDs() {
	for i, fd := range cio.childFDs {
		if fd >= 0 && (i == 0 || fd != cio.childFDs[0]) {
			_ = unix.Close(fd)
		}
	}
	cio.childFDs = [3]int{-1, -1, -1}
}

func (cio *childIO) closeAll() {
	cio.closeChildFDs()
	for _, file := range []*os.File{cio.stdin, cio.stdout, cio.stderr, cio.terminal} {
		if file != nil {
			_ = file.Close()
		}
	}
}

func rawConn(file *os.File) syscall.RawConn {
	conn, err := file.SyscallConn()
	if err != nil {
		panic("process: an open file has no descriptor: " + err.Error()) // only for a nil file
	}
	return conn
}
