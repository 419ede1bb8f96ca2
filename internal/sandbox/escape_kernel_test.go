package sandbox

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelAttempts use parts of the kernel that confined programs have no need of, and calls that reach other processes.
var kernelAttempts = map[string]attempt{
	"compare with another": {make: func(s stage) error {
		return system(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(s.Server), kcmpMemory)
	}},
	"advise another": {root: true, make: adviseOther},
	"ask where another's memory is": {make: func(s stage) error {
		page, where := uintptr(s.Secret), int32(0)
		return system(unix.SYS_MOVE_PAGES, uintptr(s.Server), 1, uintptr(unsafe.Pointer(&page)), 0, uintptr(unsafe.Pointer(&where)))
	}},
	"move another's memory": {make: func(s stage) error {
		node := uint64(1) // from where it is to where it is
		return system(unix.SYS_MIGRATE_PAGES, uintptr(s.Server), 2, uintptr(unsafe.Pointer(&node)), uintptr(unsafe.Pointer(&node)))
	}},
	"signal by queue": {make: func(s stage) error {
		info := [32]int32{0: int32(unix.SIGCONT), 2: siQueue}
		return system(unix.SYS_RT_SIGQUEUEINFO, uintptr(s.Server), uintptr(unix.SIGCONT), uintptr(unsafe.Pointer(&info)))
	}},
	"set I/O priority": {make: func(s stage) error { return system(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(s.Server), ioprioBest) }},
	"set scheduler": {make: func(s stage) error {
		var param int32
		return system(unix.SYS_SCHED_SETSCHEDULER, uintptr(s.Server), unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&param)))
	}},
	"open message queue": {make: func(s stage) error {
		name, err := unix.BytePtrFromString(s.Queue)
		if err != nil {
			return err
		}
		return system(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR)
	}},
	"count events": {root: true, make: func(stage) error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0, Config: unix.PERF_COUNT_SW_TASK_CLOCK}
		_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
		return err
	}},
	"handle page faults": {make: func(stage) error { return system(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly) }},
	"watch a file system": {make: func(stage) error {
		_, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY)
		return err
	}},
	"use keyrings": {make: func(stage) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
		return err
	}},
	"request a key": {make: func(stage) error {
		kind := [...]byte{'u', 's', 'e', 'r', 0}
		return allowed(system(unix.SYS_REQUEST_KEY, uintptr(unsafe.Pointer(&kind)), uintptr(unsafe.Pointer(&kind))), unix.ENOKEY)
	}},
	"sync quotas":      {make: func(stage) error { return system(unix.SYS_QUOTACTL, quotaSync, 0, 0, 0) }},
	"stop swapping":    {root: true, make: func(s stage) error { return allowed(swapOff(s.Dir+"/none"), unix.ENOENT) }},
	"open file system": {root: true, make: func(stage) error { _, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); return err }},
	"pick file system": {root: true, make: func(stage) error { _, err := unix.Fspick(unix.AT_FDCWD, "/proc", unix.FSPICK_CLOEXEC); return err }},
	"clone mount": {root: true, make: func(s stage) error {
		_, err := unix.OpenTree(unix.AT_FDCWD, s.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return err
	}},
	"change mount": {root: true, make: func(stage) error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
	}},
}

// Numbers that package unix does not have.
const (
	kcmpMemory   = 1
	siQueue      = -1
	ioprioBest   = 2<<13 | 4
	userModeOnly = 1
	quotaSync    = 0x800001 << 8
)

// allowed takes what the kernel says who looks for something that is not there, and may, for a success.
func allowed(err error, missing unix.Errno) error {
	switch {
	case errors.Is(err, missing):
		return nil
	case err == nil:
		return fmt.Errorf("%w: it is there", unix.EEXIST)
	}
	return err
}

func swapOff(path string) error {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	return system(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(name)))
}

// adviseOther tells the kernel that memory of the server is not needed soon.
func adviseOther(s stage) error {
	fd, err := unix.PidfdOpen(s.Server, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page := uintptr(s.Secret) &^ uintptr(os.Getpagesize()-1)
	vector := []unix.RemoteIovec{{Base: page, Len: os.Getpagesize()}}
	return system(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&vector[0])), 1, unix.MADV_COLD)
}
