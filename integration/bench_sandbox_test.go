package integration

import (
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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

// readOnly is a policy that lets everything be read and nothing be written or reached.
func readOnly() *execwirev1.SandboxPolicy {
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
			Restricted: &execwirev1.RestrictedFileSystem{Entries: []*execwirev1.SandboxEntry{{
				Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{
					Kind: execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT}},
				Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ,
			}}}}},
		Network: execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED,
	}}}
}

// atMostMore is a time that may be limit more than its floor.
func atMostMore(what string, floor, ours, limit time.Duration) line {
	return line{what: what, floor: showTime(floor), ours: showTime(ours), ratio: "+ " + showTime(ours-floor),
		budget: "≤ + " + showTime(limit), met: ours-floor <= limit}
}

// measureSandboxedSpawn takes starts with and without a sandbox in turn, on a server for each backend.
func measureSandboxedSpawn(b *bench) []line {
	var lines []line
	for _, kind := range sandboxBackends {
		c := b.dial(b.startServer("EXECWIRE_SANDBOX_BACKENDS="+kind.name), "unix")
		b.runSandboxed(c, kind.backend)
		floor, ours := samples[time.Duration]{}, samples[time.Duration]{}
		for range b.sizes.spawns {
			floor = append(floor, timed(func() { b.runTrue(c) }))
			ours = append(ours, timed(func() { b.runSandboxed(c, kind.backend) }))
		}
		b.rawTimes("start → closed, beside "+kind.name, floor)
		b.rawTimes("start → closed, "+kind.name, ours)
		lines = append(lines, atMostMore("start → closed in a sandbox, "+kind.name+", p50", floor.median(), ours.median(), kind.more))
	}
	return lines
}

// runSandboxed runs the shortest process confined, and makes sure that it was.
func (b *bench) runSandboxed(c *client.Client, backend execwirev1.SandboxBackend) {
	request, confined := benchCommand(truth), (*execwirev1.SandboxReport)(nil)
	request.GetCommand().GetDirect().Sandbox = readOnly()
	b.run(c, client.RunOptions{Process: request, OnStarted: func(p *execwirev1.Process) { confined = p.GetSandbox() }})
	if confined.GetBackend() != backend {
		b.Fatalf("it was confined by %v, want %v", confined, backend)
	}
}
