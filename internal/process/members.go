package process

import (
	"os"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/procfs"
)

// Members lists the PIDs of each process and of those descendants that the kernel vouches for, by
// one scan of /proc. It lists none for a process that has closed, whose PIDs may belong to others.
// It may be called concurrently, and does not wait for processes.
func Members(processes []*Process) ([][]int, error) {
	procs, err := procfs.List()
	if err != nil {
		return nil, err
	}
	s := processScan{procs: procs, self: os.Getpid(), session: ownSession(), cgroups: map[*trackedRoot][]int{}}
	for _, p := range processes {
		p.readControlGroup(s.cgroups)
	}
	tracker.mu.Lock()
	for _, p := range processes {
		if _, live := s.cgroups[p.root]; live {
			s.roots = append(s.roots, p.root.snapshot())
		}
	}
	tracker.mu.Unlock()
	members := s.attribute().members
	pids := make([][]int, len(processes))
	for i, p := range processes {
		if notify.IsClosed(p.Closed()) {
			continue
		}
		for _, member := range members[p.root] {
			pids[i] = append(pids[i], member.PID)
		}
	}
	return pids, nil
}

// Usage is what a process and its descendants use.
type Usage struct {
	procfs.Usage
	// Programs is how many of them live.
	Programs int
}

// UsageOf returns what each process and its descendants use, as [Members] lists them.
func UsageOf(processes []*Process) ([]Usage, error) {
	members, err := Members(processes)
	if err != nil {
		return nil, err
	}
	used := make([]Usage, len(processes))
	for i, pids := range members {
		for _, pid := range pids {
			of, err := procfs.ReadUsage(pid)
			if err != nil {
				continue // it has ended
			}
			used[i].CPU, used[i].ResidentBytes, used[i].Programs = used[i].CPU+of.CPU, used[i].ResidentBytes+of.ResidentBytes, used[i].Programs+1
		}
	}
	return used, nil
}

// readControlGroup adds the members of the process's control group, none if it has no group. It adds
// nothing for a process that was released: another process may have had its group when it was read.
func (p *Process) readControlGroup(groups map[*trackedRoot][]int) {
	var members []int
	if p.cgroup != nil {
		members = p.cgroup.Members()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.released {
		groups[p.root] = members
	}
}

// certainMembers is Members of one process. If that fails it returns none.
func certainMembers(p *Process) []int {
	pids, err := Members([]*Process{p})
	if err != nil {
		return nil
	}
	return pids[0]
}
