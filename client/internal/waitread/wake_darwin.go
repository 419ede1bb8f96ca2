package waitread

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// wake is a pipe, which is selected together with the file: poll of this system does not
// support all terminals.
type wake struct{ read, write *os.File }

func newWake() (w wake, err error) {
	w.read, w.write, err = os.Pipe()
	return w, err
}

// maxDescriptor is the largest descriptor of select.
const maxDescriptor = unix.FD_SETSIZE - 1

// waitWith blocks until fd is readable, or w is set.
func (w wake) waitWith(fd int) (set bool, err error) {
	conn, err := w.read.SyscallConn()
	if err != nil {
		return false, err
	}
	controlErr := conn.Control(func(pipe uintptr) {
		own := int(pipe)
		if max(fd, own) > maxDescriptor {
			err = &os.SyscallError{Syscall: "select", Err: unix.EMFILE}
			return
		}
		for {
			var readable unix.FdSet
			readable.Set(fd)
			readable.Set(own)
			_, err = unix.Select(max(fd, own)+1, &readable, nil, nil, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			set, err = err == nil && readable.IsSet(own), os.NewSyscallError("select", err)
			return
		}
	})
	return set, errors.Join(err, controlErr)
}

// set makes the pipe permanently readable.
func (w wake) set() { _, _ = w.write.Write([]byte{1}) }

func (w wake) close() { _, _ = w.read.Close(), w.write.Close() }
