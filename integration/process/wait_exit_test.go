package process

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// awaitExit waits until the process's exit is known.
func awaitExit(s *harness.Scenario, id string) *execwirev1.ExitRecord {
	s.Helper()
	return s.Wait(&execwirev1.WaitProcessRequest{SessionId: s.Session, ProcessId: id,
		Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}}).GetExit()
}
