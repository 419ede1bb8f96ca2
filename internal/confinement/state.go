//go:build linux

package confinement

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

// serverName is the name of a server in /proc/PID/comm.
const serverName = "execwire"

// MarkServer gives this program, which is about to serve, the name by which other programs recognize it,
// whatever its file is called. Without /proc it does nothing, and no sandbox works.
func MarkServer() { _ = os.WriteFile("/proc/self/comm", []byte(serverName), 0) }

// State is the part of /proc/PID/status that tells whether a process is confined. It cannot undo that
// part, except its own name.
type State struct {
	name       string
	parent     int
	uid        uint32
	noNewPrivs bool
	filters    int
}

// Exceeds reports whether a process in state s is confined if it descends from a server.
func (s State) Exceeds(server State) bool { return s.noNewPrivs && s.filters > server.filters }

// errUncounted means that the kernel is older than 5.9.
var errUncounted = errors.New("the kernel does not report what confines processes: Linux 5.9 or later does")

// Read reads the state of a process. It fails with ESRCH if there is no such process, or it is hidden,
// and with another error if the kernel does not count filters.
func Read(pid int) (s State, err error) {
	status, err := procfs.Status(pid, "Name", "PPid", "Uid", "NoNewPrivs", "Seccomp_filters")
	if err != nil {
		return s, err
	}
	number := func(text string) int {
		n, numberErr := strconv.Atoi(text)
		if numberErr != nil {
			err = fmt.Errorf("process %d: %w", pid, errUncounted)
		}
		return n
	}
	users := strings.Fields(status["Uid"]) // real, effective, saved, of the file system
	if len(users) < 2 {
		return s, unix.ESRCH
	}
	return State{name: status["Name"], parent: number(status["PPid"]), uid: uint32(number(users[1])),
		noNewPrivs: number(status["NoNewPrivs"]) != 0, filters: number(status["Seccomp_filters"])}, err
}

// maxAncestorAttempts is how often the ancestors of a process are read, some of which may end
// meanwhile.
const maxAncestorAttempts = 3

// HasAncestor reports whether a process, or one of its visible ancestors, is wanted. It returns true
// if that cannot be determined.
func HasAncestor(pid int, wanted func(pid int, s State) bool) bool {
	for range maxAncestorAttempts {
		found, err := searchAncestors(pid, wanted)
		if err == nil {
			return found
		}
	}
	return true
}

func searchAncestors(pid int, wanted func(pid int, s State) bool) (bool, error) {
	below := 0
	for pid != 0 {
		s, err := Read(pid)
		if errors.Is(err, unix.ESRCH) && below != 0 {
			// A process loses a parent that ends, but not one that is hidden.
			if again, againErr := Read(below); againErr == nil && again.parent == pid {
				return false, nil
			}
		}
		if err != nil {
			return false, err
		}
		if wanted(pid, s) {
			return true, nil
		}
		below, pid = pid, s.parent
	}
	return false, nil
}
