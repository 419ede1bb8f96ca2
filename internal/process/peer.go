package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// Peer is a process of this host that connects to this program, as the kernel names it.
type Peer struct {
	// PID is the process; 0 if only its socket is known, or if the process is not visible from here.
	PID int
	// Ended reports whether that process has ended, so that the number may be another's. Nil: that is not known.
	Ended func() bool
	// Socket is the inode of its TCP socket; 0 on a unix socket.
	Socket uint32
	// Cgroup is the id of the control group that the socket was made in; 0 if it is not known.
	Cgroup uint64
	// Unknown reports that the kernel named neither process nor socket.
	Unknown bool
}

var (
	// ErrPeerConfined means that a peer is a confined process.
	ErrPeerConfined = errors.New("it is confined")
	errPeerEnded    = errors.New("it has ended")
	errPeerUnseen   = errors.New("no process that can be seen has its socket")
)

// CheckPeer returns nil if the peer is no confined process of s, [ErrPeerConfined] if it is one, and another error if
// that cannot be found out. Until a confined process with the network was started it returns nil at once: others cannot
// connect. After that it reads /proc: of a unix socket that of one process and its ancestors, of a TCP socket, unless its
// control group decides, the descriptors of all processes, the newest first, up to the one that has it.
//
// Every confined process has no_new_privs and one seccomp filter more than this program at least, which neither it nor
// its descendants can give up.
func (s *Supervisor) CheckPeer(peer Peer) error {
	if !s.reachable.Load() {
		return nil
	}
	if peer.Unknown {
		return errPeerUnseen
	}
	if err := checkProc("/proc"); err != nil { // the numbers would be those of other processes
		return err
	}
	own, err := readConfinement(os.Getpid())
	if err != nil {
		return err
	}
	if peer.Socket != 0 {
		if !s.ungrouped.Load() && s.config.Cgroups.excludes(peer.Cgroup) {
			return nil
		}
		return s.checkHolders(peer.Socket, own)
	}
	if peer.PID == 0 { // the descendants of this program are visible
		return nil
	}
	confined, err := s.isConfined(peer.PID, own)
	switch {
	case err != nil:
		return err
	case confined:
		return ErrPeerConfined
	case peer.Ended != nil && peer.Ended():
		return errPeerEnded
	}
	return nil
}

// noteReachable notes that what is to be started in a control group, unless that is nil, may be able to connect to this
// program though it is confined.
func (s *Supervisor) noteReachable(spec *Spec, group *cgroup) {
	if spec.Sandbox != nil && spec.Sandbox.Report().Network != sandbox.NetworkRestricted {
		if group == nil {
			s.ungrouped.Store(true)
		}
		s.reachable.Store(true)
	}
}

// rootCgroup is the id of the root of a cgroup v2 tree. Old kernels report it of every socket if version 1 classifies
// packets.
const rootCgroup = 1

// excludes tells that a socket was made in none of the control groups of processes.
func (c *Cgroups) excludes(id uint64) bool {
	return c != nil && id > rootCgroup && !hasCgroup(c.place.dir, id)
}

// hasCgroup tells whether a directory is the control group with that id, or has it below.
func hasCgroup(dir string, id uint64) bool {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) == nil && stat.Ino == id {
		return true
	}
	return slices.ContainsFunc(cgroupChildren(dir), func(child string) bool { return hasCgroup(child, id) })
}

// checkHolders is CheckPeer of a TCP socket. One process that is not confined and has it is enough: a confined one
// cannot make another open its sockets.
func (s *Supervisor) checkHolders(socket uint32, own confinement) error {
	pids, err := listPIDs()
	if err != nil {
		return err
	}
	found := errPeerUnseen
	want := fmt.Appendf(nil, "socket:[%d]", socket)
	for _, pid := range pids {
		if !holds(pid, want) {
			continue
		}
		confined, err := s.isConfined(pid, own)
		switch {
		case err != nil: // it has ended
		case !confined:
			return nil
		default:
			found = ErrPeerConfined
		}
	}
	return found
}

// listPIDs lists all processes, the newest first as long as the numbers do not wrap.
func listPIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids, nil
}

// holds tells whether a process has a descriptor that its /proc/PID/fd calls want.
func holds(pid int, want []byte) bool {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	var buf [64]byte
	for _, name := range names {
		if n, err := unix.Readlinkat(int(dir.Fd()), name, buf[:]); err == nil && bytes.Equal(buf[:n], want) {
			return true
		}
	}
	return false
}

// confinement is what /proc/PID/status says of what a process cannot give up.
type confinement struct {
	parent     int
	noNewPrivs bool
	filters    int
}

// readConfinement fails if there is no such process, or the kernel does not count filters: those before 5.9.
func readConfinement(pid int) (c confinement, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return c, err
	}
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		number, numberErr := strconv.Atoi(string(bytes.TrimSpace(value)))
		switch string(name) {
		case "PPid":
			c.parent = number
		case "NoNewPrivs":
			c.noNewPrivs = number != 0
		case "Seccomp_filters":
			c.filters = number
		default:
			continue
		}
		if err = errors.Join(err, numberErr); numberErr == nil {
			found++
		}
	}
	const fields = 3
	if err == nil && found != fields {
		err = fmt.Errorf("the kernel does not report what confines process %d: Linux 5.9 or later does", pid)
	}
	return c, err
}

// isConfined tells whether a process is confined and descends from this program. Where orphans are not adopted
// descendants are not known, and every process counts as one.
func (s *Supervisor) isConfined(pid int, own confinement) (bool, error) {
	at, err := readConfinement(pid)
	switch {
	case err != nil:
		return false, err
	case !at.noNewPrivs || at.filters <= own.filters:
		return false, nil
	}
	return !s.adopts || descends(pid), nil
}

// descendAttempts is how often the ancestors of a process are looked at, some of which may end meanwhile.
const descendAttempts = 3

// descends tells whether a process descends from this program, which is the parent of orphans. If that cannot be told
// it does.
func descends(pid int) bool {
	self := os.Getpid()
	for range descendAttempts {
		at, err := pid, error(nil)
		for err == nil && at != self && at != 0 {
			var c confinement
			c, err = readConfinement(at)
			at = c.parent
		}
		if err == nil {
			return at == self
		}
	}
	return true
}
