package ports

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sockdiag"
)

// MaxPorts is the most ports that are reported at once: those with the lowest numbers.
const MaxPorts = 2000

// Port is a TCP port on which a process listens.
type Port struct {
	// Addr is the address and port, as they are bound.
	Addr netip.AddrPort
	// ProcessID is the id of the process, or of the one it descends from.
	ProcessID string
	// PID is the process that has the socket open; the lowest if there are several.
	PID int
	// Program is its name, as in /proc/PID/comm. Empty if it is not known.
	Program string

	inode uint32 // a port that is closed and opened again has another one
}

func compare(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Addr.Port(), b.Addr.Port()), a.Addr.Addr().Compare(b.Addr.Addr()),
		cmp.Compare(a.ProcessID, b.ProcessID), cmp.Compare(a.inode, b.inode), cmp.Compare(a.PID, b.PID))
}

// limit sorts ports and cuts them to MaxPorts.
func limit(ports []Port) (_ []Port, truncated bool) {
	slices.SortFunc(ports, compare)
	if len(ports) > MaxPorts {
		return ports[:MaxPorts:MaxPorts], true
	}
	return ports, false
}

// Process is a process with its id.
type Process struct {
	// ID is its id in its session.
	ID string
	// Process is the process.
	*process.Process
}

// Processes returns the processes whose ports are of interest, at this moment. Its error ends a
// watch. It must not block.
type Processes func() ([]Process, error)

// sockets are listening sockets by inode.
type sockets map[uint32]sockdiag.Listener

func listening() (sockets, error) {
	list, err := sockdiag.Listeners()
	if err != nil {
		return nil, err
	}
	s := make(sockets, len(list))
	for _, l := range list {
		s[l.Inode] = l
	}
	return s, nil
}

// owned returns the ports of each process among the sockets, by one scan of /proc.
func (s sockets) owned(processes []*process.Process) (map[*process.Process][]Port, error) {
	found := make(map[*process.Process][]Port, len(processes))
	if len(s) == 0 || len(processes) == 0 {
		return found, nil
	}
	members, err := process.Members(processes)
	if err != nil {
		return nil, err
	}
	for i, p := range processes {
		seen := map[uint32]bool{}
		slices.Sort(members[i])
		for _, pid := range members[i] {
			program := ""
			for _, inode := range procfs.Sockets(pid) {
				l, ok := s[inode]
				if !ok || seen[inode] {
					continue
				}
				if seen[inode] = true; program == "" {
					program = procfs.Program(pid)
				}
				found[p] = append(found[p], Port{Addr: l.Addr, PID: pid, Program: program, inode: inode})
			}
		}
	}
	return found, nil
}

// List returns the ports on which processes listen, at most [MaxPorts], and whether there are more.
// It does not wait. The error is that of processes, or one of the system.
func List(processes Processes) (_ []Port, truncated bool, err error) {
	list, err := processes()
	if err != nil {
		return nil, false, err
	}
	s, err := listening()
	if err != nil {
		return nil, false, err
	}
	found, err := s.owned(plain(list))
	if err != nil {
		return nil, false, err
	}
	ports, truncated := limit(named(list, found))
	return ports, truncated, nil
}

func plain(list []Process) (processes []*process.Process) {
	for _, p := range list {
		processes = append(processes, p.Process)
	}
	return processes
}

// named returns the ports of the listed processes, with their ids.
func named(list []Process, found map[*process.Process][]Port) (ports []Port) {
	for _, p := range list {
		for _, port := range found[p.Process] {
			port.ProcessID = p.ID
			ports = append(ports, port)
		}
	}
	return ports
}
