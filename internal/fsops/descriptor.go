package fsops

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// descriptor is an open file of any type. It is not in Go's poller: a file that
// is not ready says so instead of making a goroutine wait.
type descriptor int

// Flags that every open has, and those of ours for directories.
const (
	always      = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	asDirectory = always | unix.O_RDONLY | unix.O_DIRECTORY
	asParent    = unix.O_CLOEXEC | unix.O_PATH | unix.O_DIRECTORY
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
	return admitted(fd, flags)
}

func openPath(path string, flags int, mode uint32) (descriptor, error) {
	return openAt(unix.AT_FDCWD, path, flags, mode)
}

func (d descriptor) readAt(p []byte, offset int64) (int, error) {
	return retried(func() (int, error) { return unix.Pread(int(d), p, offset) })
}

// write writes all of p, unless there is an error.
func (d descriptor) write(p []byte) error {
	for len(p) > 0 {
		n, err := retried(func() (int, error) { return unix.Write(int(d), p) })
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

// close releases the descriptor, also when it returns an error, which can be one
// of writing.
func (d descriptor) close() error {
	if err := unix.Close(int(d)); err != unix.EINTR {
		return err
	}
	return nil
}

// release closes what was only read, or what failed already.
func (d descriptor) release() { _ = d.close() }

// cleaned is the path in its shortest form, or an error if it is none.
func cleaned(verb, p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", refused(InvalidPath, verb, p, "it is not an absolute path")
	case strings.IndexByte(p, 0) >= 0:
		return "", refused(InvalidPath, verb, p, "it has a NUL in it")
	}
	return path.Clean(p), nil
}

// openParent opens the directory that a path is in, and returns the name that
// the path has there.
func openParent(p string) (parent descriptor, name string, err error) {
	parent, err = openPath(path.Dir(p), asParent, 0)
	if p == "/" {
		return parent, ".", err
	}
	return parent, path.Base(p), err
}
