package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/handover"
	"github.com/execwire/execwire/internal/testcert"
)

// A daemon that can neither be replaced nor serve again stops with the reason.
func TestUpgrade_FailsAndCannotServe_Stops(t *testing.T) {
	dir := t.TempDir()
	steps, authorities := filepath.Join(dir, "steps"), filepath.Join(dir, "ca.pem")
	t.Setenv(handover.FailpointVariable, steps)
	for path, content := range map[string][]byte{steps: []byte(handover.Frozen), authorities: testcert.NewAuthority(t).PEM} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.Listen = []string{"tcp://127.0.0.1:0"}
	cfg.RemoteURL, cfg.ExecutorID, cfg.RemoteCA = "https://127.0.0.1:1", "here", authorities
	ready, done := make(chan struct{}), make(chan error, 1)
	d, err := New(cfg, Options{OnReady: func() { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- d.Serve(context.Background(), context.Background()) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	program, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(authorities); err != nil {
		t.Fatal(err)
	}
	d.upgrades.begun <- &upgrade{program: handover.Program{File: program}}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "remote_tls_ca") || !strings.Contains(err.Error(), string(handover.Frozen)) {
		t.Errorf("Serve: %v", err)
	}
}
