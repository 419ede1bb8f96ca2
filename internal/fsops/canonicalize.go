package fsops

import (
	"errors"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Canonicalize returns the path of what a path leads to, without links.
func Canonicalize(path string) (string, error) {
	path, err := cleanPath("resolve", path)
	if err != nil {
		return "", err
	}
	if _, err := statAt(unix.AT_FDCWD, path, 0); err != nil {
		return "", failed("resolve", path, err)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved, nil
	}
	// It counts links itself, and then has no errno.
	if errno := syscall.Errno(0); !errors.As(err, &errno) {
		err = unix.ELOOP
	}
	return "", failed("resolve", path, err)
}
