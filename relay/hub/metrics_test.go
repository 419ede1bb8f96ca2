package hub_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/metrics"
)

// TestMetrics registers an executor, reaches a limit and fails to authenticate.
func TestMetrics(t *testing.T) {
	c := startPreviews(t, func(cfg *config.Hub) {
		cfg.PrincipalExecutors, cfg.AuditFile = 1, filepath.Join(t.TempDir(), "audit.log")
	})
	for executor, want := range map[string]int{"build-1": http.StatusOK, "forbidden": http.StatusForbidden} {
		if response, answer := c.ask("POST", c.url+"/cloud/executor/"+executor+"/register", bearer(fleetToken), nil); response.StatusCode != want {
			t.Errorf("%s: %s, %v", executor, response.Status, answer)
		}
	}
	if response, answer := c.ask("POST", c.url+"/cloud/executor/build-2/register", bearer(fleetToken), nil); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("another executor: %s, %v", response.Status, answer)
	}
	if response, _ := c.ask("GET", c.url+"/metrics", nil, nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("metrics without a token: %s", response.Status)
	}
	text := c.metrics(agentToken)
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, line := range []string{
		`execwire_hub_executors{state="online"} 0`, `execwire_hub_executors{state="offline"} 1`, `execwire_hub_presence_ready 1`,
		`execwire_hub_refusals_total{code="forbidden"} 1`, `execwire_hub_refusals_total{code="executor_limit"} 1`,
		`execwire_hub_limits_hit_total{limit="executors_per_principal"} 1`,
		`execwire_hub_audit_records_total{result="written"} 6`, `execwire_hub_audit_records_total{result="dropped"} 0`,
		`execwire_hub_auth_failures_total{reason="credential_missing"} 1`, `execwire_hub_build_info{version="devel"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	for _, listed := range metrics.Hub {
		if !strings.Contains(text, "\n# TYPE "+listed.Name+" "+string(listed.Type)+"\n") {
			t.Errorf("%s is not served", listed.Name)
		}
	}
}
