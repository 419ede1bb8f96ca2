package client

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stdinReader is a reader whose Read may be interruptible: interrupt makes a
// Read that is going on, and every later one, return an error. release gives
// the reader back as it was; nothing may be called after it. added is told that what a
// Read returned will be passed on, and ending says whether it is known that a Read
// will return the end.
type stdinReader interface {
	io.Reader
	interruptible() bool
	interrupt()
	release()
	added(n int)
	ending() bool
}

// unaware is the part of a stdinReader that knows of no pump.
type unaware struct{}

func (unaware) added(int)    {}
func (unaware) ending() bool { return false }

// newStdinReader finds the way in which r can be interrupted.
func newStdinReader(r io.Reader) stdinReader {
	if own, ok := r.(stdinReader); ok {
		return own
	}
	if d, ok := r.(deadliner); ok && d.SetReadDeadline(time.Time{}) == nil {
		return deadlineReader{deadliner: d}
	}
	if f, ok := r.(*os.File); ok {
		if p, err := newPollReader(f); err == nil {
			return p
		}
	}
	return plainReader{Reader: r}
}

// plainReader cannot be interrupted.
type plainReader struct {
	io.Reader
	unaware
}

func (plainReader) interruptible() bool { return false }
func (plainReader) interrupt()          {}
func (plainReader) release()            {}

type deadliner interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// deadlineReader is interrupted by a deadline in the past.
type deadlineReader struct {
	deadliner
	unaware
}

func (deadlineReader) interruptible() bool { return true }

// An error of SetReadDeadline means that the reader was closed, which
// interrupts it too.
func (r deadlineReader) interrupt() { _ = r.SetReadDeadline(time.Unix(1, 0)) }
func (r deadlineReader) release()   { _ = r.SetReadDeadline(time.Time{}) }

var errInterrupted = errors.New("interrupted")

// pollReader reads a file that is not in the runtime's poller, as standard
// input mostly is not, and waits for it beside an event descriptor.
type pollReader struct {
	unaware
	file *os.File
	raw  syscall.RawConn
	wake int

	once sync.Once
}

func newPollReader(file *os.File) (*pollReader, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &pollReader{file: file, raw: raw, wake: wake}, nil
}

func (r *pollReader) Read(p []byte) (int, error) {
	for {
		if err := r.wait(); err != nil {
			return 0, err
		}
		n, err := r.file.Read(p)
		// Somebody else who has the file open may have made it non-blocking,
		// and may have taken what there was.
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

// wait blocks until the file can be read or the reader is interrupted.
func (r *pollReader) wait() error {
	var interrupted bool
	var pollErr error
	err := r.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{
			{Fd: int32(fd), Events: unix.POLLIN},
			{Fd: int32(r.wake), Events: unix.POLLIN},
		}
		for {
			_, pollErr = unix.Poll(fds, -1)
			if !errors.Is(pollErr, unix.EINTR) {
				break
			}
		}
		interrupted = fds[1].Revents != 0
	})
	switch {
	case err != nil:
		return err
	case pollErr != nil:
		return os.NewSyscallError("poll", pollErr)
	case interrupted:
		return errInterrupted
	}
	return nil
}

func (r *pollReader) interruptible() bool { return true }

// interrupt leaves the event descriptor readable for good.
func (r *pollReader) interrupt() {
	_, _ = unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (r *pollReader) release() {
	r.once.Do(func() { _ = unix.Close(r.wake) })
}
