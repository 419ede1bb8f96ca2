package process

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Guarded tells whether this process was started by [Guard], and then returns what to watch the guardian by; otherwise
// it returns nil. It takes away what told it, so that children are not told; call it once, before anything is started
// or the environment is read.
func Guarded() (*GuardianWatch, error) {
	value, set := os.LookupEnv(guardianVariable)
	if !set {
		return nil, nil
	}
	if err := os.Unsetenv(guardianVariable); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < guardianPipe || !isPipe(fd) {
		return nil, nil // it came from somebody else
	}
	unix.CloseOnExec(fd)
	// The program was executed by a name that says nothing.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	file, err := pollable(fd, "guardian")
	if err != nil {
		return nil, guardError(err)
	}
	return &GuardianWatch{file: file}, nil
}

func isPipe(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// GuardianWatch notices the end of the guardian, and the signals that it got.
type GuardianWatch struct {
	file *os.File // the reading end of a pipe that nobody but the guardian could write to
}

// Wait blocks until the guardian is gone, and then returns nil, or until Close, and then returns [os.ErrClosed].
// Meanwhile it calls passed with each signal that a guardian of the same process group has got; passed must not block.
func (w *GuardianWatch) Wait(passed func(syscall.Signal)) error {
	for buf := make([]byte, 16); ; {
		n, err := w.file.Read(buf)
		for _, sig := range buf[:n] {
			passed(syscall.Signal(sig))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return os.ErrClosed
		}
	}
}

// Close ends the watch, and the Wait that is under way. Closing again does nothing.
func (w *GuardianWatch) Close() { _ = w.file.Close() }
