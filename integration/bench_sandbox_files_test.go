package integration

import (
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// confinedCallRatio is how much longer a call about a file may take whose helper is
// there, beside one that is not confined.
const confinedCallRatio = 2

// readOnlyJSON is what readOnly is in JSON-RPC.
const readOnlyJSON = `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`

// measureSandboxedFiles takes calls with and without a sandbox in turn, through both
// doors, on a server for each backend.
func measureSandboxedFiles(b *bench) []line {
	var lines []line
	for _, kind := range sandboxBackends {
		setting := "EXECWIRE_SANDBOX_BACKENDS=" + kind.name
		path := b.zeroFile(1 << 10)
		files := b.files(b.startServer(setting), "unix")
		stat := func(policy *execwirev1.SandboxPolicy) {
			response, err := files.GetMetadata(b.ctx, &execwirev1.GetMetadataRequest{Path: path, Sandbox: policy})
			if err != nil || response.GetMetadata().GetSize() != 1<<10 {
				b.Fatalf("the file is said to be %v: %v", response, err)
			}
		}
		policy := readOnly()
		if _, err := files.WriteFile(b.ctx, &execwirev1.WriteFileRequest{Path: path, Sandbox: policy}); err == nil {
			b.Fatal("the call was not confined")
		}
		lines = append(lines, b.confinedCalls("gRPC, "+kind.name, func() { stat(nil) }, func() { stat(policy) }))

		c := b.dialRPCUnread(b.startSocketServer(setting).urls[jsonRPC])
		ask := func(sandbox string) {
			c.ask(`{"id":0,"method":"fs/getMetadata","params":{"path":%q%s}}`, path, sandbox)
		}
		lines = append(lines, b.confinedCalls("JSON-RPC, "+kind.name, func() { ask("") }, func() { ask(readOnlyJSON) }))
	}
	return lines
}

// confinedCalls takes two calls in turn.
func (b *bench) confinedCalls(what string, plain, confined func()) line {
	plain()
	confined() // starts the helper
	floor, ours := samples[time.Duration]{}, samples[time.Duration]{}
	for range b.sizes.requests {
		floor = append(floor, timed(plain))
		ours = append(ours, timed(confined))
	}
	b.rawTimes("call about a file, beside "+what, floor)
	b.rawTimes("call about a file in a sandbox, "+what, ours)
	return atMost("call about a file in a sandbox, warm, "+what+", p50", floor.median(), ours.median(), confinedCallRatio, showTime)
}
