package process

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// plumbing is what connects a child: its three descriptors and our ends of them.
type plumbing struct {
	child [3]int // blocking; of a terminal all three are the same

	stdin    *os.File // nil: /dev/null or a terminal
	stdout   *os.File
	stderr   *os.File
	terminal *os.File // the master; then the others are nil
}

// plumb makes the descriptors for spec. If it fails it leaves nothing open.
func plumb(spec *Spec) (pl *plumbing, err error) {
	pl = &plumbing{child: [3]int{-1, -1, -1}}
	defer func() {
		if err != nil {
			pl.closeAll()
		}
	}()
	if spec.Terminal != nil {
		return pl, pl.openTerminal(spec.Terminal.withDefaults())
	}
	return pl, pl.openPipes(spec.PipeStdin)
}

func (pl *plumbing) openPipes(stdin bool) error {
	var err error
	if stdin {
		pl.child[0], pl.stdin, err = pipeTo("stdin")
	} else {
		// Not shared between children: flags and locks belong to the open file.
		pl.child[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return resourceError("stdin", err)
	}
	if pl.child[1], pl.stdout, err = pipeFrom("stdout"); err != nil {
		return resourceError("stdout", err)
	}
	if pl.child[2], pl.stderr, err = pipeFrom("stderr"); err != nil {
		return resourceError("stderr", err)
	}
	return nil
}

// pipeFrom makes a pipe from the child to us.
func pipeFrom(name string) (child int, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	ours, err = pollable(p[0], name)
	return p[1], ours, err
}

// pipeTo makes a pipe from us to the child.
func pipeTo(name string) (child int, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	ours, err = pollable(p[1], name)
	return p[0], ours, err
}

// pollable hands fd to the runtime's poller. It owns fd, also when it fails.
func pollable(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	// os.NewFile keeps quiet when the poller refuses the descriptor, and every read would then fail.
	if err := file.SetDeadline(noDeadline); err != nil {
		_ = file.Close()
		return nil, errors.Join(unix.ENOSPC, err) // epoll's only refusals are limits
	}
	return file, nil
}

func (pl *plumbing) openTerminal(size WindowSize) error {
	master, slave, err := pty.Open()
	if err != nil {
		return resourceError("terminal", err)
	}
	// pty.Open leaves the master blocking; a clean duplicate goes to the poller. Fd makes the slave blocking again.
	defer master.Close()
	defer slave.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return resourceError("terminal", err)
	}
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return resourceError("terminal", err)
	}
	if pl.terminal, err = pollable(fd, "terminal"); err != nil {
		return resourceError("terminal", err)
	}
	tty, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return resourceError("terminal", err)
	}
	pl.child = [3]int{tty, tty, tty}
	return nil
}

// identify names what the child's descendants can be known by. Both ends of a pipe have the same identity.
func (pl *plumbing) identify() (streams []fileID) {
	for i, fd := range pl.child {
		if i == 0 && pl.stdin == nil && pl.terminal == nil {
			continue // /dev/null is everybody's
		}
		if id, ok := identifyFile(fd); ok && !slices.Contains(streams, id) {
			streams = append(streams, id)
		}
	}
	return streams
}

// closeChild closes the child's descriptors, which are its own from the fork on: as long as we hold one, we never see
// the end of a stream.
func (pl *plumbing) closeChild() {
	for i, fd := range pl.child {
		if fd >= 0 && (i == 0 || fd != pl.child[0]) {
			_ = unix.Close(fd)
		}
	}
	pl.child = [3]int{-1, -1, -1}
}

func (pl *plumbing) closeAll() {
	pl.closeChild()
	for _, file := range []*os.File{pl.stdin, pl.stdout, pl.stderr, pl.terminal} {
		if file != nil {
			_ = file.Close()
		}
	}
}

func rawConn(file *os.File) syscall.RawConn {
	conn, err := file.SyscallConn()
	if err != nil {
		panic("process: an open file has no descriptor: " + err.Error()) // only a nil file has none
	}
	return conn
}
