package fsops

import (
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxStepBytes is how much of a path is resolved at once: the kernel takes 4096
// bytes with the zero at the end, and trees can be deeper.
const maxStepBytes = 4000

// noOpenat2 is set when the kernel has no openat2.
var noOpenat2 atomic.Bool

// openBeneath opens what a path leads to that begins in a directory, without
// going through any link, which is ELOOP, also at its end. The path is clean, of
// any length and without ".."; "" is the directory itself.
func openBeneath(dir descriptor, relative string, flags int, mode uint32) (descriptor, error) {
	if relative == "" {
		return openAt(dir, ".", flags, mode)
	}
	at, opened := dir, false
	for len(relative) > maxStepBytes {
		cut := strings.LastIndexByte(relative[:maxStepBytes], '/')
		if cut < 0 {
			break // a name that is too long, which the kernel says
		}
		next, err := openStep(at, relative[:cut], asParent, 0)
		if opened {
			at.release()
		}
		if err != nil {
			return 0, err
		}
		at, opened, relative = next, true, relative[cut+1:]
	}
	fd, err := openStep(at, relative, flags, mode)
	if opened {
		at.release()
	}
	return fd, err
}

// openStep is openBeneath for a path that the kernel takes.
func openStep(dir descriptor, relative string, flags int, mode uint32) (descriptor, error) {
	if !noOpenat2.Load() {
		how := unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
		fd, err := retried(func() (int, error) { return unix.Openat2(int(dir), relative, &how) })
		switch err {
		case nil:
			return admitted(fd, flags)
		case unix.ENOSYS:
			noOpenat2.Store(true)
		case unix.EPERM: // which can be that of a filter of system calls
		default:
			return 0, err
		}
	}
	return openByNames(dir, relative, flags, mode)
}

// openByNames is openStep for kernels without openat2, and where it is forbidden.
func openByNames(dir descriptor, relative string, flags int, mode uint32) (descriptor, error) {
	at, opened := dir, false
	for {
		name, rest, more := strings.Cut(relative, "/")
		var fd descriptor
		var err error
		if more {
			fd, err = openAt(at, name, asParent|unix.O_NOFOLLOW, 0)
		} else {
			fd, err = openAt(at, name, flags|unix.O_NOFOLLOW, mode)
		}
		if err == unix.ENOTDIR && isLink(at, name) {
			err = unix.ELOOP
		}
		if opened {
			at.release()
		}
		if err != nil || !more {
			return fd, err
		}
		at, opened, relative = fd, true, rest
	}
}

func isLink(dir descriptor, name string) bool {
	m, err := statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && m.IsSymlink
}
