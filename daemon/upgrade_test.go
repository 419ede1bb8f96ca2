package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
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

// A client that asks the new program early waits until the pause is known.
func TestUpgrade_IsDoneOnceItIsLogged(t *testing.T) {
	u := newUpgrades(&Upgrades{state: &handover.State{State: &handoverv1.State{UpgradeId: "u"}}}, "v2")
	d := &Daemon{upgrades: u}
	if got, found := d.Upgrade("u"); !found || !got.Running {
		t.Errorf("before it serves: %+v, %t", got, found)
	}
	u.done(time.Second)
	if got, found := d.Upgrade("u"); !found || got.Running || got.Pause != time.Second {
		t.Errorf("once it serves: %+v, %t", got, found)
	}
}

// A new program must be able to use the directories of its configuration, which this one may have locked.
func TestCheckUpgrade_UnusableDirectory_IsNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Listen, cfg.StateDirectory, cfg.RecordingDirectory = []string{"off"}, filepath.Join(dir, "state"), filepath.Join(dir, "recordings")
	d, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	check := func(change func(*Config)) error {
		sample, err := handover.Seal(d.upgradeState(""), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := cfg
		change(&next)
		return CheckUpgrade(next, Options{}, sample)
	}
	if err := check(func(*Config) {}); err != nil {
		t.Errorf("the same configuration: %v", err)
	}
	for setting, change := range map[string]func(*Config){
		"state_directory":     func(next *Config) { next.StateDirectory = file },
		"recording_directory": func(next *Config) { next.RecordingDirectory = file },
	} {
		if err := check(change); err == nil || !strings.Contains(err.Error(), setting) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s is a file: %v", setting, err)
		}
	}
}
