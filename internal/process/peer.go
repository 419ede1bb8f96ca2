package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
)

// Peer is a process of this host that connects to this program, as the kernel identifies it.
type Peer struct {
	// PID is the process; 0 if only its socket is known, or if it is not in this PID namespace.
	PID int
	// Ended reports whether the process has ended, so that the PID may be reused. Nil: unknown.
	Ended func() bool
	// Socket is the inode of its TCP socket; 0 on a unix socket.
	Socket uint32
	// Cgroup is the ID of the control group in which the socket was created; 0 if it is not known.
	Cgroup uint64
	// Unknown reports that the kernel identified neither process nor socket.
	Unknown bool
}

var (
	// ErrPeerConfined means that a peer is a confined process.
	ErrPeerConfined = errors.New("it is confined")
	errPeerEnded    = errors.New("it has ended")
	errPeerNotFound = errors.New("no visible process has its socket")
)

// CheckPeer returns nil if the peer is not a confined process of s, [ErrPeerConfined] if it is, and
// another error if that cannot be determined. Until a confined process with network access was
// started it returns nil at once, because no other can connect. After that it reads /proc: for a
// unix socket the process and its ancestors, and for a TCP socket, unless its control group
// decides, the descriptors of processes, newest first, until it finds an owner. It reads the state of
// all processes if some that are confined have no control group.
//
// Every confined process has no_new_privs and at least one seccomp filter more than this program.
// Neither it nor its descendants can drop these.
func (s *Supervisor) CheckPeer(peer Peer) error {
	if !s.confinedMayConnect.Load() {
		return nil
	}
	if peer.Unknown {
		return errPeerNotFound
	}
	if err := procfs.CheckMount("/proc"); err != nil { // the PIDs would mean other processes
		return err
	}
	own, err := readConfinement(os.Getpid())
	if err != nil {
		return err
	}
	if peer.Socket != 0 {
		ungrouped := s.confinedUngrouped.Load()
		outside := s.config.Cgroups.Excludes(peer.Cgroup)
		switch {
		case outside && !ungrouped:
			return nil
		case !outside && s.isConfinedGroup(peer.Cgroup):
			return ErrPeerConfined
		}
		return s.checkSocketOwners(peer.Socket, own, ungrouped)
	}
	if peer.PID == 0 { // descendants of this program are in its PID namespace
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

// noteNetworkAccess records that a process to be started in a control group, which may be nil, may
// be able to connect to this program although it is confined.
func (s *Supervisor) noteNetworkAccess(spec *Spec, group *cgroup.Group) {
	if spec.Sandbox != nil && spec.Sandbox.Report().Network != sandbox.NetworkRestricted {
		if group == nil {
			s.confinedUngrouped.Store(true)
		}
		s.confinedMayConnect.Store(true)
	}
}

// isConfinedGroup reports whether a control group is that of a confined process with network
// access. A socket of it is refused whichever process has it now: a confined process can send its
// descriptor to one that is not.
func (s *Supervisor) isConfinedGroup(id uint64) bool {
	return id != 0 && slices.ContainsFunc(s.tracked(), func(p *Process) bool {
		return p.cgroup != nil && p.sandbox != nil && p.sandbox.Network != sandbox.NetworkRestricted && p.cgroup.Has(id)
	})
}

// checkSocketOwners is CheckPeer for a TCP socket. If it may have been created by a confined process,
// none of its owners may be one. Otherwise one that is not confined is enough.
func (s *Supervisor) checkSocketOwners(socket uint32, own confinement, mayBeConfined bool) error {
	pids, err := procfs.ListPIDs()
	if err != nil {
		return err
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a }) // newest first, unless PIDs wrapped around
	found := errPeerNotFound
	want := map[string]bool{fmt.Sprintf("socket:[%d]", socket): true}
	for _, pid := range pids {
		if found == nil { // only a confined owner would change that, and most processes are not confined
			confined, err := s.isConfined(pid, own)
			switch {
			case err != nil && !errors.Is(err, unix.ESRCH):
				return err
			case err != nil, !confined:
				continue
			}
		}
		if !procfs.HasDescriptor(pid, want) {
			continue
		}
		confined, err := s.isConfined(pid, own)
		switch {
		case errors.Is(err, unix.ESRCH): // it has ended
		case err != nil:
			return err
		case confined && mayBeConfined:
			return ErrPeerConfined
		case confined:
			found = ErrPeerConfined
		case !mayBeConfined:
			return nil
		default:
			found = nil
		}
	}
	return found
}

// confinement is the part of /proc/PID/status that a process cannot undo.
type confinement struct {
	parent     int
	noNewPrivs bool
	filters    int
}

// readConfinement fails if there is no such process, or if the kernel (before 5.9) does not count
// filters.
func readConfinement(pid int) (c confinement, err error) {
	status, err := procfs.Status(pid, "PPid", "NoNewPrivs", "Seccomp_filters")
	if err != nil {
		return c, err
	}
	number := func(name string) int {
		n, numberErr := strconv.Atoi(status[name])
		if numberErr != nil {
			err = fmt.Errorf("the kernel does not report what confines process %d: Linux 5.9 or later does", pid)
		}
		return n
	}
	c = confinement{parent: number("PPid"), noNewPrivs: number("NoNewPrivs") != 0, filters: number("Seccomp_filters")}
	return c, err
}

// isConfined reports whether a process is confined and descends from this program. Without
// AdoptOrphans descendants are not known, and every process counts as one.
func (s *Supervisor) isConfined(pid int, own confinement) (bool, error) {
	at, err := readConfinement(pid)
	switch {
	case err != nil:
		return false, err
	case !at.noNewPrivs || at.filters <= own.filters:
		return false, nil
	}
	return !s.adoptsOrphans || descends(pid), nil
}

// maxAncestorAttempts is how often the ancestors of a process are read, some of which may end
// meanwhile.
const maxAncestorAttempts = 3

// descends reports whether a process descends from this program, which is the subreaper. It returns
// true if that cannot be determined.
func descends(pid int) bool {
	self := os.Getpid()
	for range maxAncestorAttempts {
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
