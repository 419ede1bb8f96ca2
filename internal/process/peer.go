package process

import (
	"os"
	"slices"
	"sync/atomic"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/confinement"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
)

// CheckPeer returns nil if the peer is not a confined process of s, [confinement.ErrConfined] if it is, and
// another error if that cannot be determined. Until a confined process with network access was
// started it returns nil at once, because no other can connect. After that it reads /proc: for a
// unix socket the process and its ancestors, and for a TCP socket, unless its control group
// decides, the descriptors of processes, newest first, until it finds an owner. It reads the state of
// all processes if some that are confined have no control group.
//
// Every confined process has no_new_privs and at least one seccomp filter more than this program.
// Neither it nor its descendants can drop these.
func (s *Supervisor) CheckPeer(peer confinement.Peer) error {
	if !s.confinedPeers.mayConnect.Load() {
		return nil
	}
	if peer.Unknown {
		return confinement.ErrNotFound
	}
	if err := procfs.CheckMount("/proc"); err != nil { // the PIDs would mean other processes
		return err
	}
	own, err := confinement.Read(os.Getpid())
	if err != nil {
		return err
	}
	isConfined := func(pid int) (bool, error) { return s.isConfined(pid, own) }
	if peer.Socket != 0 {
		ungrouped := s.confinedPeers.ungrouped.Load()
		outside := s.config.Cgroups.Excludes(peer.Cgroup)
		switch {
		case outside && !ungrouped:
			return nil
		case !outside && s.isConfinedGroup(peer.Cgroup):
			return confinement.ErrConfined
		}
		return confinement.CheckSocketOwners(peer.Socket, ungrouped, isConfined)
	}
	return confinement.CheckProcess(peer, isConfined)
}

// confinedPeers are what CheckPeer has to know.
type confinedPeers struct {
	mayConnect atomic.Bool // a confined process with network access was started
	ungrouped  atomic.Bool // one of those had no control group
}

// noteNetworkAccess records that a process to be started in a control group, which may be nil, may
// be able to connect to this program although it is confined.
func (c *confinedPeers) noteNetworkAccess(spec *Spec, group *cgroup.Group) {
	if spec.Sandbox != nil && spec.Sandbox.Report().Network != sandbox.NetworkRestricted {
		if group == nil {
			c.ungrouped.Store(true)
		}
		c.mayConnect.Store(true)
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

// isConfined reports whether a process is confined and descends from this program. Without
// AdoptOrphans descendants are not known, and every process counts as one.
func (s *Supervisor) isConfined(pid int, own confinement.State) (bool, error) {
	at, err := confinement.Read(pid)
	if err != nil || !at.Exceeds(own) {
		return false, err
	}
	return !s.adoptsOrphans || descends(pid), nil
}

// descends reports whether a process descends from this program, which is the subreaper. It returns
// true if that cannot be determined.
func descends(pid int) bool {
	self := os.Getpid()
	return confinement.HasAncestor(pid, func(ancestor int, _ confinement.State) bool { return ancestor == self })
}
