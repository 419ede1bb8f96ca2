package main

import (
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

func TestDoctor_ProcessLimit_ReportsProtection(t *testing.T) {
	for detail, tc := range map[string]struct {
		reserve daemon.ProcessReserve
		works   bool
	}{
		"only the machine limits":         {daemon.ProcessReserve{}, true},
		"processes get 75":                {daemon.ProcessReserve{Limit: 150, ControlGroup: 75}, true},
		"RLIMIT_NPROC of processes is 90": {daemon.ProcessReserve{Limit: 120, UserProcesses: 90}, true},
		"threads created in advance p":    {daemon.ProcessReserve{Limit: 150}, false},
	} {
		got := processLimit(tc.reserve)
		if got.Works != tc.works || !strings.Contains(got.Detail, detail) || tc.works != (got.Fix == "") {
			t.Errorf("%+v is reported as %+v, want %q", tc.reserve, got, detail)
		}
	}
}

func TestDoctor_OOMScore_WorksUnlessDisabled(t *testing.T) {
	cfg := config.Default()
	if c := oomScore(cfg); !c.Works {
		t.Errorf("by default %+v", c)
	}
	cfg.OOMScoreAdjust = 0
	if c := oomScore(cfg); c.Works || c.Fix == "" {
		t.Errorf("switched off %+v", c)
	}
}

func TestDoctor_MemoryLimit_NamesItsSource(t *testing.T) {
	c := machine{root: "/"}.memory(config.Default())
	if !strings.Contains(c.Detail, "MiB by /") || !strings.Contains(c.Detail, "quarter") {
		t.Errorf("the check is %+v", c)
	}
	if c := (machine{root: t.TempDir()}).memory(config.Default()); c.Works || !strings.Contains(c.Detail, "unknown") {
		t.Errorf("without /proc the check is %+v", c)
	}
}

// Each of the settings of a server in production is checked by itself.
func TestDoctor_Production_ReportsUnsafeSettings(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	certificate, _ := testcert.NewAuthority(t).Issue("server", func(c *x509.Certificate) { c.NotAfter = now.AddDate(1, 0, 0) }).Write(t, dir, "server")
	safe := config.Default()
	safe.Listen = []string{"tcp://127.0.0.1:7420", "wss://0.0.0.0:7421"}
	safe.Principals, safe.AuditFile, safe.TLSCertificate = "principals.toml", filepath.Join(dir, "audit.log"), certificate
	for name, test := range map[string]struct {
		change func(*config.Config)
		after  time.Duration // of now
		fails  string
		detail string
	}{
		"nothing":          {func(*config.Config) {}, 0, "", ""},
		"no TLS":           {func(c *config.Config) { c.Listen = append(c.Listen, "ws://0.0.0.0:7422") }, 0, "listeners", "ws://0.0.0.0:7422: tokens"},
		"wrong listener":   {func(c *config.Config) { c.Listen = []string{"tcp://0.0.0.0:1"} }, 0, "listeners", "tcp://0.0.0.0:1"},
		"no principals":    {func(c *config.Config) { c.Principals = "" }, 0, "principals metrics", "one principal"},
		"no audit log":     {func(c *config.Config) { c.AuditFile = "" }, 0, "audit-log", "nothing records"},
		"no directory":     {func(c *config.Config) { c.AuditFile = "/nowhere/audit.log" }, 0, "audit-log", "/nowhere is not"},
		"no certificate":   {func(c *config.Config) { c.TLSCertificate = "" }, 0, "", ""},
		"another file":     {func(c *config.Config) { c.TLSCertificate = "/dev/null" }, 0, "tls-certificate", "PEM"},
		"expired":          {func(*config.Config) {}, 10000 * 24 * time.Hour, "tls-certificate", "is valid until"},
		"not valid yet":    {func(*config.Config) {}, -10000 * 24 * time.Hour, "tls-certificate", "is valid until"},
		"loopback, no TLS": {func(c *config.Config) { c.Listen = []string{"ws://127.0.0.1:1", "unix:///run/s"} }, 0, "", ""},
	} {
		cfg := safe
		test.change(&cfg)
		var failed, details []string
		for _, c := range productionChecks(cfg, now.Add(test.after)) {
			if !c.Works {
				failed, details = append(failed, c.Check), append(details, c.Detail)
			}
			if c.Works != (c.Fix == "") || c.Detail == "" || c.Advice { // wss://0.0.0.0 is for others
				t.Errorf("%s: %+v", name, c)
			}
		}
		if got := strings.Join(failed, " "); got != test.fails || !strings.Contains(strings.Join(details, "\n"), test.detail) {
			t.Errorf("%s: %q fail, want %q: %q", name, got, test.fails, details)
		}
	}
}

// What only production needs is advice for a server that only its user can reach.
func TestDoctor_ServerOfOneUser_GetsAdvice(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*config.Config)
		advice bool
	}{
		"default":        {func(*config.Config) {}, true},
		"a socket":       {func(c *config.Config) { c.Listen = []string{"unix:///run/s", "stdio"} }, true},
		"other users":    {func(c *config.Config) { c.LoopbackUsers = []string{"any"} }, false},
		"a hub":          {func(c *config.Config) { c.RemoteURL = "https://hub.example.org" }, false},
		"other machines": {func(c *config.Config) { c.Listen = append(c.Listen, "tls://0.0.0.0:7421") }, false},
	} {
		cfg := config.Default()
		test.change(&cfg)
		for _, c := range productionChecks(cfg, time.Now()) {
			fails := c.Check == checkPrincipals || c.Check == checkMetrics || c.Check == checkAuditLog
			if c.Works == fails || c.Advice != (fails && test.advice) {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}
