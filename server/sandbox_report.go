package server

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// backends translates what confines; a test proves it complete.
var backends = map[sandbox.Backend]execwirev1.SandboxBackend{
	sandbox.Bubblewrap: execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP,
	sandbox.Landlock:   execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK,
}

// toSandboxReport says what is enforced on a process.
func toSandboxReport(r sandbox.Report) *execwirev1.SandboxReport {
	return &execwirev1.SandboxReport{
		Backend:         backends[r.Backend],
		Network:         toNetworkAccess(r.Network),
		RestrictsFiles:  r.Files,
		HidesProcesses:  r.HidesProcesses,
		FreezesMetadata: r.FreezesMetadata,

		ReportsSignalsAsCodes: r.ExitByCode,
	}
}

func toNetworkAccess(n sandbox.Network) execwirev1.NetworkAccess {
	if n == sandbox.NetworkEnabled {
		return execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
	}
	return execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED
}
