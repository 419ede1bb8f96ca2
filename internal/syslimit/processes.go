package syslimit

import "golang.org/x/sys/unix"

// UserProcesses returns how many processes and threads the user of this program may have
// (RLIMIT_NPROC). limited is false if there is no limit, or if it does not apply to this program.
func (s System) UserProcesses() (limit uint64, limited bool) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil || own.Cur == unix.RLIM_INFINITY || isExempt() {
		return 0, false
	}
	return own.Cur, true
}

// GroupProcesses returns how many processes and threads the control groups of this program may have
// (pids.max), and the file that contains the limit. limited is false if there is none.
func (s System) GroupProcesses() (limit uint64, source string, limited bool) {
	return s.lowestLimit("pids", "pids.max", "pids.max")
}

// Processes returns the lower of UserProcesses and GroupProcesses.
func (s System) Processes() (limit uint64, limited bool) {
	limit, limited = s.UserProcesses()
	if group, _, ok := s.GroupProcesses(); ok && (!limited || group < limit) {
		return group, true
	}
	return limit, limited
}
