package server

import (
	"context"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// sandboxStatuses waits until it is known what works here, and says it.
func (s *Server) sandboxStatuses(ctx context.Context) ([]sandbox.Status, error) {
	if s.cfg.Sandboxes == nil {
		return nil, nil
	}
	if err := s.cfg.Sandboxes.Wait(ctx); err != nil {
		return nil, err
	}
	return s.cfg.Sandboxes.Statuses(), nil
}

func toSandboxStatuses(statuses []sandbox.Status) (list []*execwirev1.SandboxStatus) {
	for _, status := range statuses {
		m := &execwirev1.SandboxStatus{Backend: backends[status.Backend], Works: status.Err == nil, Program: status.Path}
		if status.Err != nil {
			m.Problem = status.Err.Error()
		}
		list = append(list, m)
	}
	return list
}

// working are the backends that work.
func working(statuses []*execwirev1.SandboxStatus) (works []execwirev1.SandboxBackend) {
	for _, status := range statuses {
		if status.GetWorks() {
			works = append(works, status.GetBackend())
		}
	}
	return works
}
