package waitread

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// wake is an eventfd, which is polled together with the file.
type wake int

func newWake() (wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return wake(fd), err
}

// waitWith blocks until fd is readable, or w is set.
func (w wake) waitWith(fd int) (set bool, err error) {
	fds := []unix.PollFd{
		{Fd: int32(fd), Events: unix.POLLIN},
		{Fd: int32(w), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return fds[1].Revents != 0, os.NewSyscallError("poll", err)
	}
}

// set makes the eventfd permanently readable.
func (w wake) set() { _, _ = unix.Write(int(w), []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (w wake) close() { _ = unix.Close(int(w)) }
