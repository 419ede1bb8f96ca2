package process

import "os"

// members lists the process and its descendants, as far as the kernel vouches for them. Once p has closed they may be
// another's.
func (p *Process) members() []int {
	procs, err := readProcs()
	if err != nil {
		return nil
	}
	s := survey{procs: procs, self: os.Getpid(), session: ownSession(), cgroups: map[*kin][]int{}}
	if p.cgroup != nil {
		s.cgroups[p.kin] = p.cgroup.members()
	}
	children.mu.Lock()
	s.claims = []claim{{kin: p.kin, reaped: p.kin.reaped, deserted: p.kin.deserted, over: p.kin.over}}
	children.mu.Unlock()
	var pids []int
	for _, member := range s.divide().members[p.kin] {
		pids = append(pids, member.pid)
	}
	return pids
}
