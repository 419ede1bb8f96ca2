package fsops

import (
	"cmp"
	"strings"

	"golang.org/x/sys/unix"
)

// openBeneath opens what a path below a directory leads to. It follows no links, also not at the
// end: they are ELOOP. The path is clean, of any length and without ".."; "" is the directory
// itself. It opens one name at a time, because openat2 is limited to paths of 4096 bytes, and
// seccomp filters and old kernels do not permit it.
func openBeneath(dir descriptor, relative string, flags int) (descriptor, error) {
	relative = cmp.Or(relative, ".")
	for at := dir; ; {
		name, rest, more := strings.Cut(relative, "/")
		step := flags
		if more {
			step = openDirPath
		}
		fd, err := openNoFollow(at, name, step, 0)
		if at != dir {
			at.release()
		}
		if err != nil || !more {
			return fd, err
		}
		at, relative = fd, rest
	}
}

// maxReplaced is how often openNoFollow opens a name again that was replaced meanwhile.
const maxReplaced = 100

// openNoFollow opens a name in a directory. A link is ELOOP.
func openNoFollow(dir descriptor, name string, flags int, mode uint32) (descriptor, error) {
	for attempt := 0; ; attempt++ {
		fd, err := openAt(dir, name, flags|unix.O_NOFOLLOW, mode)
		if err != unix.ENOTDIR || attempt == maxReplaced {
			return fd, err
		}
		m, statErr := statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case statErr == nil && m.Type == Symlink:
			return 0, unix.ELOOP
		case statErr != nil || m.Type != Directory:
			return 0, err
		}
		// It was replaced by a directory meanwhile.
	}
}

func isLink(dir descriptor, name string) bool {
	m, err := statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && m.IsSymlink
}
