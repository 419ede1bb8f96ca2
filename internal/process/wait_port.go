package process

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A port is looked for by reading /proc, which tells nobody of a change: at first often, later less so, and never for
// more than a tenth of the time.
const (
	portPauseFirst = 50 * time.Millisecond
	portPauseMost  = 250 * time.Millisecond
	portShare      = 10
)

// WaitPort waits until a TCP port is listened on, at any address, by the process or a descendant of it, each in its own
// network namespace, and reports whether that was so before the wait was over or the process closed. Whoever else
// listens on the port does not count. A wait of 0 only looks. It returns the cause of ctx when that ends.
func (p *Process) WaitPort(ctx context.Context, port uint16, wait time.Duration) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for pause := portPauseFirst; ; pause = min(2*pause, portPauseMost) {
		if p.isClosed() {
			return false, nil
		}
		began := time.Now()
		// Once it has closed, who were its members may be another's.
		if listens(p.members(), port) && !p.isClosed() {
			return true, nil
		}
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case waiting.Err() != nil:
			return false, nil
		}
		timer := time.NewTimer(max(pause, portShare*time.Since(began)))
		select {
		case <-timer.C:
		case <-waiting.Done():
		case <-p.closed:
		}
		timer.Stop()
	}
}

func (p *Process) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// listens reports whether one of the processes holds a socket that listens on the port. Of one that is gone, or may not
// be looked at, it is not known.
func listens(pids []int, port uint16) bool {
	listeners := map[string]map[string]bool{} // by network namespace: as /proc/PID/fd names them
	for _, pid := range pids {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			continue
		}
		sockets, known := listeners[namespace]
		if !known {
			sockets = listeningSockets(pid, port)
			listeners[namespace] = sockets
		}
		if len(sockets) > 0 && holdsOne(pid, sockets) {
			return true
		}
	}
	return false
}

// listeningSockets returns the sockets that listen on the port in the network namespace of a process.
func listeningSockets(pid int, port uint16) map[string]bool {
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if inode, ok := parseListener(line, port); ok {
				sockets["socket:["+inode+"]"] = true
			}
		}
	}
	return sockets
}

// parseListener returns the inode of a line of /proc/PID/net/tcp if that is of a socket that listens on the port.
func parseListener(line string, port uint16) (inode string, ok bool) {
	const local, state, inodeField, listen = 1, 3, 9, "0A"
	fields := strings.Fields(line)
	if len(fields) <= inodeField || fields[state] != listen {
		return "", false
	}
	_, hex, _ := strings.Cut(fields[local], ":")
	bound, err := strconv.ParseUint(hex, 16, 16)
	return fields[inodeField], err == nil && uint16(bound) == port
}

// holdsOne reports whether a process has one of the sockets open.
func holdsOne(pid int, sockets map[string]bool) bool {
	directory := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.Open(directory)
	if err != nil {
		return false
	}
	defer func() { _ = open.Close() }()
	names, _ := open.Readdirnames(-1)
	for _, name := range names {
		if target, err := os.Readlink(directory + "/" + name); err == nil && sockets[target] {
			return true
		}
	}
	return false
}
