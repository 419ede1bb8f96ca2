package syslimit

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// UserProcesses returns how many processes and threads the user of this program may have
// (RLIMIT_NPROC). It is false if that is not limited, or not for this program.
func (s System) UserProcesses() (limit uint64, limited bool) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil || own.Cur == unix.RLIM_INFINITY || s.exempt() {
		return 0, false
	}
	return own.Cur, true
}

// exempt reports whether the kernel does not hold this program to RLIMIT_NPROC: that of
// user 0, or with one of two capabilities.
func (s System) exempt() bool {
	if os.Getuid() == 0 {
		return true
	}
	text, _ := os.ReadFile(s.path("proc/self/status"))
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
			return err == nil && caps&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
		}
	}
	return false
}

// GroupProcesses returns how many processes and threads the control groups of this
// program may have (pids.max), and the file that says so. It is false if that is not
// limited.
func (s System) GroupProcesses() (limit uint64, source string, limited bool) {
	return s.lowest("pids", "pids.max", "pids.max")
}

// Processes returns the lower one of UserProcesses and GroupProcesses.
func (s System) Processes() (limit uint64, limited bool) {
	limit, limited = s.UserProcesses()
	if group, _, ok := s.GroupProcesses(); ok && (!limited || group < limit) {
		return group, true
	}
	return limit, limited
}
