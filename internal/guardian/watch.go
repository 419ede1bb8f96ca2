//go:build linux

package guardian

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guarded reports whether this process was started by [Run]: it then returns a watch on the
// guardian, which lasts until this process ends, otherwise nil. It removes the environment
// variable, so that children do not inherit it. Call it once, before anything is started or the
// environment is read.
func Guarded() (*Watch, error) {
	value, set := os.LookupEnv(PipeVariable)
	if !set {
		return nil, nil
	}
	if err := os.Unsetenv(PipeVariable); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < pipeFD || !isPipe(fd) {
		return nil, nil // not set by a guardian
	}
	unix.CloseOnExec(fd)
	// The server was executed as /proc/self/exe, which is its name otherwise.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, guardError(err)
	}
	file := os.NewFile(uintptr(fd), "guardian")
	if err := file.SetDeadline(time.Time{}); err != nil { // the poller has refused it
		return nil, guardError(err)
	}
	w := &Watch{pipe: file, gone: make(chan struct{}), signals: make(chan syscall.Signal, 16)}
	go w.watch(file)
	return w, nil
}

func isPipe(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// Watch detects the end of the guardian, and receives the signals that it forwards. A nil
// one is that of a process without a guardian: its channels are nil.
type Watch struct {
	pipe    *os.File
	gone    chan struct{}
	signals chan syscall.Signal
}

// Pipe returns the pipe whose write end the guardian has. A program that replaces this one
// finds its guardian by the descriptor in [PipeVariable]. The watch cannot be nil.
func (w *Watch) Pipe() syscall.Conn { return w.pipe }

// Gone returns a channel that is closed when the guardian is gone.
func (w *Watch) Gone() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.gone
}

// Signals returns a channel with the signals that a guardian in the same process group receives.
// While 16 are not received, further ones are dropped.
func (w *Watch) Signals() <-chan syscall.Signal {
	if w == nil {
		return nil
	}
	return w.signals
}

// watch reads the pipe, whose only write end the guardian has.
func (w *Watch) watch(pipe *os.File) {
	for buf := make([]byte, 16); ; {
		n, err := pipe.Read(buf)
		for _, sig := range buf[:n] {
			select {
			case w.signals <- syscall.Signal(sig):
			default:
			}
		}
		if err != nil {
			close(w.gone)
			return
		}
	}
}
