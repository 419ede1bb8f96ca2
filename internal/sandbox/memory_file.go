package sandbox

import (
	"errors"

	"golang.org/x/sys/unix"
)

// memoryFile creates a file in memory with the given content, positioned at its start.
func memoryFile(name string, flags int, content []byte) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, which has no such flags
		fd, err = unix.MemfdCreate(name, (flags|unix.MFD_CLOEXEC)&^(unix.MFD_EXEC|unix.MFD_NOEXEC_SEAL))
	}
	if err != nil {
		return -1, err
	}
	for at := 0; at < len(content); {
		n, err := unix.Pwrite(fd, content[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			_ = unix.Close(fd)
			return -1, err
		}
		at += max(n, 0)
	}
	return fd, nil
}
