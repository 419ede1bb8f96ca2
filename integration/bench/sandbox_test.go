package bench

import (
	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// sandboxBackends are what sandboxes are measured with.
var sandboxBackends = []struct {
	name    string
	backend execwirev1.SandboxBackend
}{
	{"landlock", execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK},
	{"bubblewrap", execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP},
}

// The budgets of a start in a sandbox: with Landlock beside a plain start, in seconds, and with
// bubblewrap beside bwrap on the floor.
const (
	landlockMore    = 0.0005
	bubblewrapRatio = 1.3
)

// bareBwrap has the namespaces and mounts of a policy that allows reading everything.
var bareBwrap = []string{
	"/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--cap-drop", "ALL",
	"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", harness.TrueCommand,
}

// measureSandboxedStart takes starts in a sandbox and those of the floor in turn, on a server
// for each backend.
func measureSandboxedStart(b *bench) []line {
	conn := b.channel(b.startFloor(), tuned()...)
	times := map[string][]figures{}
	for _, kind := range sandboxBackends {
		c := b.dial(b.startServer("EXECWIRE_SANDBOX_BACKENDS="+kind.name), "TCP")
		b.runSandboxed(c, kind.backend)
		floor := timed("start → closed, beside "+kind.name, func() { b.runTrue(c) })
		if kind.backend == execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP {
			floor = timed("bwrap, floor", func() { b.runFloor(conn, 0, bareBwrap...) })
		}
		times[kind.name] = b.alternate(b.sizes.spawns/2, 0.5, floor,
			timed("start → closed, "+kind.name, func() { b.runSandboxed(c, kind.backend) }))
	}
	landlock, bubblewrap := times["landlock"], times["bubblewrap"]
	return []line{
		atMostMore("start → closed in a sandbox, landlock, beside a plain one, p50", landlock[0], landlock[1], landlockMore, showSeconds),
		atMost("start → closed in a sandbox, bubblewrap, beside `bwrap` itself, p50", bubblewrap[0], bubblewrap[1], bubblewrapRatio, showSeconds),
	}
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
