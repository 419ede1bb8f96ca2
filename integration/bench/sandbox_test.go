package bench

import (
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// sandboxBackends are what a sandboxed start is measured with, and how much more it may take.
var sandboxBackends = []struct {
	name    string
	backend execwirev1.SandboxBackend
	more    time.Duration
}{
	{"landlock", execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK, 500 * time.Microsecond},
	{"bubblewrap", execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP, 4 * time.Millisecond},
}

// atMostMore is a time that may be limit more than its floor.
func atMostMore(what string, floor, ours, limit time.Duration) line {
	return line{what: what, floor: harness.ShowTime(floor), ours: harness.ShowTime(ours), ratio: "+ " + harness.ShowTime(ours-floor),
		budget: "≤ + " + harness.ShowTime(limit), met: ours-floor <= limit}
}

// measureSandboxedSpawn takes starts with and without a sandbox in turn, on a server for each backend.
func measureSandboxedSpawn(b *bench) []line {
	var lines []line
	for _, kind := range sandboxBackends {
		c := b.dial(b.startServer("EXECWIRE_SANDBOX_BACKENDS="+kind.name), "unix")
		b.runSandboxed(c, kind.backend)
		floor, ours := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
		for range b.sizes.spawns {
			floor = append(floor, harness.Timed(func() { b.runTrue(c) }))
			ours = append(ours, harness.Timed(func() { b.runSandboxed(c, kind.backend) }))
		}
		b.rawTimes("start → closed, beside "+kind.name, floor)
		b.rawTimes("start → closed, "+kind.name, ours)
		lines = append(lines, atMostMore("start → closed in a sandbox, "+kind.name+", p50", floor.Median(), ours.Median(), kind.more))
	}
	return lines
}

// runSandboxed runs the shortest process confined, and makes sure that it was.
func (b *bench) runSandboxed(c *client.Client, backend execwirev1.SandboxBackend) {
	request, confined := benchCommand(harness.TrueCommand), (*execwirev1.SandboxReport)(nil)
	request.GetCommand().GetDirect().Sandbox = harness.ReadOnly()
	b.run(c, client.RunOptions{Process: request, OnStarted: func(p *execwirev1.Process) { confined = p.GetSandbox() }})
	if confined.GetBackend() != backend {
		b.Fatalf("it was confined by %v, want %v", confined, backend)
	}
}
