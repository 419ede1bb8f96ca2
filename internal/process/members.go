package process

import (
	"os"

	"github.com/execwire/execwire/internal/procfs"
)

// certainMembers lists a process and those descendants that the kernel vouches for. After p has closed
// the PIDs may belong to other processes.
func (t *processTracker) certainMembers(p *Process) []int {
	procs, err := procfs.List()
	if err != nil {
		return nil
	}
	s := processScan{procs: procs, self: os.Getpid(), session: ownSession(), cgroups: map[*trackedRoot][]int{}}
	if p.cgroup != nil {
		s.cgroups[p.root] = p.cgroup.Members()
	}
	t.mu.Lock()
	s.roots = []rootState{{trackedRoot: p.root, reaped: p.root.reaped, sessionEmpty: p.root.sessionEmpty, ending: p.root.ending}}
	t.mu.Unlock()
	var pids []int
	for _, member := range s.attribute().members[p.root] {
		pids = append(pids, member.PID)
	}
	return pids
}
