package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isNumberInUse tells whether a number is anything's: a process's, a group's or a session's. That is what the kernel
// looks at for the owner of a descriptor, and any will do that gets nobody a signal.
func isNumberInUse(fd uintptr, number int) bool {
	_, err := unix.FcntlInt(fd, unix.F_SETOWN, number)
	return !errors.Is(err, unix.ESRCH)
}

// deserted lists those that were reaped and in whose session nobody is left. A list of all processes is no proof: it
// misses those who are forked while it is made. Call it soon, and again: what is in use by another now is not listed.
func (s survey) deserted() (list []*kin) {
	sessions := map[int]bool{}
	for _, p := range s.procs {
		sessions[p.session] = true
	}
	fd := -1
	for _, c := range s.claims {
		if !c.reaped || c.deserted || sessions[c.pid] {
			continue
		}
		if fd < 0 {
			var err error
			if fd, err = unix.PidfdOpen(os.Getpid(), 0); err != nil {
				return nil
			}
			defer unix.Close(fd)
		}
		if !isNumberInUse(uintptr(fd), c.pid) {
			list = append(list, c.kin)
		}
	}
	return list
}
