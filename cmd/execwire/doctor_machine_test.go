package main

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
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
