package fsops

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// descriptor is an open file of any type. It is not registered with the poller of the runtime: an
// operation on a file that is not ready fails instead of blocking.
type descriptor int

// Flags that every open has, and those of ours for directories.
const (
	commonFlags = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	openDirRead = commonFlags | unix.O_RDONLY | unix.O_DIRECTORY
	openDirPath = unix.O_CLOEXEC | unix.O_PATH | unix.O_DIRECTORY
)

// retried calls f again when a signal interrupted it.
func retried[T any](f func() (T, error)) (T, error) {
	for {
		if v, err := f(); err != unix.EINTR {
			return v, err
		}
	}
}

func openAt(dir descriptor, name string, flags int, mode uint32) (descriptor, error) {
	fd, err := retried(func() (int, error) { return unix.Openat(int(dir), name, flags, mode) })
	if err != nil {
		return 0, err
	}
	return admitFD(fd, flags)
}

// openPath opens a directory as a place for names, not to read it.
func openPath(path string) (descriptor, error) { return openAt(unix.AT_FDCWD, path, openDirPath, 0) }

func (d descriptor) readAt(p []byte, offset int64) (int, error) {
	return retried(func() (int, error) { return unix.Pread(int(d), p, offset) })
}

// write writes all of p, unless there is an error.
func (d descriptor) write(p []byte) error {
	return writeAll(p, func(rest []byte) (int, error) { return unix.Write(int(d), rest) })
}

// writeAt writes all of p at an offset, unless there is an error.
func (d descriptor) writeAt(p []byte, offset int64) error {
	return writeAll(p, func(rest []byte) (int, error) {
		return unix.Pwrite(int(d), rest, offset+int64(len(p)-len(rest)))
	})
}

// writeAll calls write with what is left of p until all is written.
func writeAll(p []byte, write func(rest []byte) (int, error)) error {
	for len(p) > 0 {
		n, err := retried(func() (int, error) { return write(p) })
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EIO
		}
		p = p[n:]
	}
	return nil
}

// close closes the descriptor, also if it returns an error, which may be a delayed write error.
func (d descriptor) close() error {
	if err := unix.Close(int(d)); err != unix.EINTR {
		return err
	}
	return nil
}

// release closes a descriptor that was only read, or after another error.
func (d descriptor) release() { _ = d.close() }

// cleanPath returns the shortest form of an absolute path.
func cleanPath(verb, p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", newError(InvalidPath, verb, p, "it is not an absolute path")
	case strings.IndexByte(p, 0) >= 0:
		return "", newError(InvalidPath, verb, p, "it has a NUL in it")
	}
	return path.Clean(p), nil
}

// openParent opens the directory that a path is in, and returns the name that
// the path has there.
func openParent(p string) (parent descriptor, name string, err error) {
	parent, err = openPath(path.Dir(p))
	if p == "/" {
		return parent, ".", err
	}
	return parent, path.Base(p), err
}
