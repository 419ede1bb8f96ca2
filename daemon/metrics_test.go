package daemon_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	var token string
	o := open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		dir := t.TempDir()
		token = strings.Repeat("t", 40)
		testcert.WriteFile(t, filepath.Join(dir, "token"), []byte(token))
		cfg.Principals = testcert.WriteFile(t, filepath.Join(dir, "principals.toml"),
			[]byte("[[principal]]\nname = \"viewer\"\nallow = [\"view\"]\ntoken_file = \""+filepath.Join(dir, "token")+"\"\n"))
	})
	_, err := execwirev1.NewProcessServiceClient(o.daemon.Conn()).StartProcess(o.ctx, &execwirev1.StartProcessRequest{ProcessId: "p",
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: []string{"/bin/sleep", "1000"}, WorkingDirectory: "/"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, path string
		header       http.Header
		status       int
	}{
		{"GET", "/metrics", nil, 401}, {"GET", "/metrics", bearerHeader(strings.Repeat("x", 40)), 401},
		{"GET", "/metrics", bearerHeader(token), 200}, {"HEAD", "/metrics", bearerHeader(token), 200},
		{"POST", "/metrics", bearerHeader(token), 405}, {"GET", "/metrics/x", bearerHeader(token), 404}, {"GET", "/metricsx", bearerHeader(token), 404},
	} {
		response, text := o.exchange(test.method, test.path, test.header, "")
		if response.StatusCode != test.status {
			t.Errorf("%s %s with %v: %s, want %d", test.method, test.path, test.header, response.Status, test.status)
		}
		if test.method != http.MethodGet || response.StatusCode != http.StatusOK {
			continue
		}
		for _, line := range []string{"execwire_processes_running 1", "execwire_sessions 1", `execwire_build_info{version="devel"} 1`, "# TYPE execwire_retained_bytes gauge"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%q is not in\n%s", line, text)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	}
}
