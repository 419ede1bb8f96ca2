package process

import (
	"slices"
	"testing"
)

// A closed process does not have the members of another that got its control group.
func TestMembers_ReusedControlGroup_BelongsToNewProcess(t *testing.T) {
	s := newSupervisor(t, Config{AdoptOrphans: true, Cgroups: withCgroups(t)})
	begin := func(script string) *Process {
		p, err := s.Start(testContext(t), shell(script))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := begin("exit 0")
	waitClosed(t, first)
	next := begin("exec sleep 1000")
	if first.cgroup.Path() != next.cgroup.Path() {
		t.Fatalf("the control group %s was not reused: %s", first.cgroup.Path(), next.cgroup.Path())
	}
	for _, order := range [][]*Process{{first, next}, {next, first}} {
		pids, err := Members(order)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(order, next)
		if !slices.Equal(pids[i], []int{next.PID()}) || len(pids[1-i]) > 0 {
			t.Errorf("the members are %v, want %d of the process %d only", pids, next.PID(), i)
		}
	}
}
