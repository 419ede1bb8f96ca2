package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// isPIDInUse reports whether a number is in use as the ID of a process, a group or a session.
// F_SETOWN makes the kernel look it up. Any descriptor will do that generates no signals.
func isPIDInUse(fd uintptr, pid int) bool {
	_, err := unix.FcntlInt(fd, unix.F_SETOWN, pid)
	return !errors.Is(err, unix.ESRCH)
}

// emptySessions lists the reaped roots whose session has no members left. The scan alone does not
// prove it: it misses processes that are forked meanwhile. A root is not listed if its PID is in
// use for another purpose, so the result gets less complete with time.
func (s processScan) emptySessions() (list []*trackedRoot) {
	sessions := map[int]bool{}
	for _, p := range s.procs {
		sessions[p.Session] = true
	}
	fd := -1
	for _, root := range s.roots {
		if !root.reaped || root.sessionEmpty || sessions[root.pid] {
			continue
		}
		if fd < 0 {
			var err error
			if fd, err = unix.PidfdOpen(os.Getpid(), 0); err != nil {
				return nil
			}
			defer unix.Close(fd)
		}
		if !isPIDInUse(uintptr(fd), root.pid) {
			list = append(list, root.trackedRoot)
		}
	}
	return list
}
