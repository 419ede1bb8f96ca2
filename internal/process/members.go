package process

import (
	"os"

	"github.com/execwire/execwire/internal/procfs"
)

// certainMembers lists a process and those descendants that the kernel vouches for. After it has
// closed the PIDs may belong to other processes.
func certainMembers(p *Process) []int {
	procs, err := procfs.List()
	if err != nil {
		return nil
	}
	s := processScan{procs: procs, self: os.Getpid(), session: ownSession(), cgroups: map[*trackedRoot][]int{}}
	if p.cgroup != nil {
		s.cgroups[p.root] = p.cgroup.Members()
	}
	tracker.mu.Lock()
	s.roots = []scannedRoot{p.root.snapshot()}
	tracker.mu.Unlock()
	var pids []int
	for _, member := range s.attribute().members[p.root] {
		pids = append(pids, member.PID)
	}
	return pids
}
