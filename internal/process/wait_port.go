package process

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/procfs"
)

// /proc does not report changes, so it is polled: often at first, then less often, and never for
// more than 1/portPollShare of the time.
const (
	minPortPoll   = 50 * time.Millisecond
	maxPortPoll   = 250 * time.Millisecond
	portPollShare = 10
)

// WaitPort waits until the process or a descendant listens on a TCP port, at any address, each in
// its own network namespace, and reports whether that happened within wait and before the process
// closed. Other listeners on the port do not count. A wait of 0 checks once. If ctx ends it returns
// its cause.
func (p *Process) WaitPort(ctx context.Context, port uint16, wait time.Duration) (bool, error) {
	pause := minPortPoll / 2
	return pollUntil(ctx, wait, p.Closed(), func() (listening bool, _ time.Duration) {
		began := time.Now()
		pause = min(2*pause, maxPortPoll)
		// After the close the PIDs may belong to other processes.
		listening = listens(certainMembers(p), port)
		return listening, max(pause, portPollShare*time.Since(began))
	})
}

// listens reports whether one of the processes has a socket that listens on the port. Processes
// that are gone or may not be inspected are skipped.
func listens(pids []int, port uint16) bool {
	listeners := map[string]map[string]bool{} // by network namespace, as in /proc/PID/ns/net
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
		if len(sockets) > 0 && procfs.HasDescriptor(pid, sockets) {
			return true
		}
	}
	return false
}

// listeningSockets returns the sockets that listen on the port in the network namespace of a
// process.
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

// parseListener parses a line of /proc/PID/net/tcp, and returns the inode of the socket if it
// listens on the port.
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
