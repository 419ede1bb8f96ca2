package fsops

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// share is how many quarters of the descriptors that the process may have open
// (RLIMIT_NOFILE) there may be when something of files opens another one. The rest
// is for connections, and for starting processes.
type share uint64

const (
	keptShare share = 2 // of what stays open between calls
	callShare share = 3 // of every call
)

// fewDescriptors is a number below which no descriptor is one too many.
const fewDescriptors = 64

// exceeds reports whether more descriptors are open than a share allows. The
// kernel gives the lowest number that is free, so that as many are open as a new
// one says.
func (d descriptor) exceeds(s share) bool {
	if d < fewDescriptors {
		return false
	}
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return err == nil && uint64(d) >= limit.Cur/4*uint64(s)
}

// admitted is a descriptor that was opened, or EMFILE if it is one too many. What
// made or truncated a file by being opened is not refused afterwards: [hasRoom]
// comes before it.
func admitted(fd int, flags int) (descriptor, error) {
	d := descriptor(fd)
	if flags&unix.O_CREAT == 0 && d.exceeds(callShare) {
		d.release()
		return 0, unix.EMFILE
	}
	return d, nil
}

// hasRoom is EMFILE if another descriptor would be one too many.
func hasRoom(s share) error {
	d, err := openPath("/", asParent, 0)
	if err != nil {
		return err
	}
	defer d.release()
	if d.exceeds(s) {
		return unix.EMFILE
	}
	return nil
}

// explained says how to mend what the kernel, or we, say without.
func explained(err error) error {
	if err == unix.EMFILE {
		return fmt.Errorf("%w: close handles of files, wait for other calls on files, or raise the server's limit of open files (RLIMIT_NOFILE)", err)
	}
	return err
}
