package deploy

import (
	"os/exec"
	"testing"
)

// TestAlerts checks the alert rules, and evaluates them on series that testdata describes.
func TestAlerts(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "../../deploy/monitoring/alerts.yaml"},
		{"test", "rules", "testdata/alerts_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
