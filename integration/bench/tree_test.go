package bench

import (
	"strconv"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// benchTreeSize is how many children the process has that is killed as a tree.
const benchTreeSize = 8

// measureTree measures the cost of killing a process tree, at the start of a process and when
// it is killed. One server has control groups, the other has none.
func measureTree(b *bench) []line {
	kinds := []struct {
		name     string
		settings []string
	}{{"with control groups", nil}, {"without", []string{"EXECWIRE_CGROUP=off"}}}
	starts, kills := map[string]harness.Samples[time.Duration]{}, map[string]harness.Samples[time.Duration]{}
	for range b.sizes.treeRounds {
		for _, kind := range kinds {
			c := b.dial(b.startServer(kind.settings...), "unix")
			b.watchTrue(c)
			for range b.sizes.spawns / b.sizes.treeRounds {
				starts[kind.name] = append(starts[kind.name], harness.Timed(func() { b.watchTrue(c) }))
			}
			for range b.sizes.terminations / b.sizes.treeRounds {
				kills[kind.name] = append(kills[kind.name], b.killTree(c.Processes()))
			}
		}
	}
	var lines []line
	for _, kind := range kinds {
		b.rawTimes("start → closed, "+kind.name, starts[kind.name])
		b.rawTimes("forced end of a tree, "+kind.name, kills[kind.name])
		lines = append(lines, within("forced end of a process with "+strconv.Itoa(benchTreeSize)+" children, verified, "+kind.name+", p99",
			kills[kind.name].Quantile(0.99), 50*time.Millisecond, harness.ShowTime))
	}
	with, without := starts[kinds[0].name], starts[kinds[1].name]
	return append([]line{atMost("start → closed in a control group, beside without, p50", without.Median(), with.Median(), 1.1, harness.ShowTime)}, lines...)
}

// killTree starts a tree, ends it at once and returns how long that took.
func (b *bench) killTree(processes execwirev1.ProcessServiceClient) time.Duration {
	b.Helper()
	started, err := processes.StartProcess(b.ctx, benchCommand(testproc.Argv("tree", strconv.Itoa(benchTreeSize))...))
	if err != nil {
		b.Fatal(err)
	}
	id := started.GetProcess().GetProcessId()
	ready, err := processes.WaitProcess(b.ctx, &execwirev1.WaitProcessRequest{ProcessId: id, Condition: &execwirev1.WaitProcessRequest_Pattern{
		Pattern: &execwirev1.WaitForPattern{RegularExpression: "ready.*\n"}}})
	if err != nil || !ready.GetSatisfied() {
		b.Fatalf("the tree did not grow: %v, %v", ready, err)
	}
	return harness.Timed(func() {
		ended, err := processes.TerminateProcess(b.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id,
			Termination: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}})
		if err != nil || !ended.GetWasRunning() || !ended.GetVerifiedEmpty() {
			b.Errorf("the tree was ended with %v: %v", ended, err)
		}
	})
}
