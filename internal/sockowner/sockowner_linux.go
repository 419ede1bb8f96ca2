package sockowner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// show locks a new socket, which has no other effect: /proc/locks then names this process, and only the
// kernel writes that. The lock ends with the socket.
func show(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) { _ = unix.Flock(int(fd), unix.LOCK_SH|unix.LOCK_NB) })
}

// Of returns the process that shows the socket with this inode as its own; 0 if none does. The process
// may have ended, and its PID have been reused, if another one has the socket from it. It waits for
// other locks of the system, some milliseconds.
func Of(socket uint32) (pid int, err error) {
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	device, err := device()
	if err != nil {
		return 0, err
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), socket)
	for line := range bytes.Lines(table) {
		// 1: FLOCK ADVISORY READ 24326 00:09:357626 0 EOF
		if field := strings.Fields(string(line)); len(field) == 8 && field[1] == "FLOCK" && field[5] == want {
			return strconv.Atoi(field[4])
		}
	}
	return 0, nil
}

// device returns the device of all sockets.
func device() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	return stat.Dev, err
}
