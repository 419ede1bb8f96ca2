package server

import (
	"context"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// backends translates backends; a test proves it complete.
var backends = map[sandbox.Backend]execwirev1.SandboxBackend{
	sandbox.Bubblewrap: execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP,
	sandbox.Landlock:   execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK,
}

// toSandboxReport describes what is enforced on a process.
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

// sandboxes waits until the backends are probed, and describes them. working lists
// those that work.
func (s *Server) sandboxes(ctx context.Context) (statuses []*execwirev1.SandboxStatus, working []execwirev1.SandboxBackend, err error) {
	if s.cfg.Sandboxes == nil {
		return nil, nil, nil
	}
	if err := s.cfg.Sandboxes.Wait(ctx); err != nil {
		return nil, nil, err
	}
	for _, status := range s.cfg.Sandboxes.Statuses() {
		m := &execwirev1.SandboxStatus{Backend: backends[status.Backend], Works: status.Err == nil, Program: status.Path}
		if status.Err != nil {
			m.Problem = status.Err.Error()
		} else {
			working = append(working, m.GetBackend())
		}
		statuses = append(statuses, m)
	}
	return statuses, working, nil
}
