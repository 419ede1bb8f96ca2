package flags

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/execwire/execwire/internal/config"
)

func parse(t *testing.T, arguments ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.String("token", "", "")
	f.String("ca", "", "")
	f.Uint32("skew", 30, "")
	f.Bool("identity", false, "")
	f.StringArray("label", nil, "")
	if err := f.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return f
}

var overrides = Overrides{"token": "remote_token_file", "ca": "remote_ca_file", "skew": "ws_max_clock_skew", "identity": "agent_identity", "label": "executor_labels"}

func TestOverrides_SetTheirSettings(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.RemoteTokenFile = "/before"
	overrides.Apply(parse(t, "--ca", "a", "--skew", "7", "--identity", "--label", "a=b,c", "--label", "d=e"), &cfg)
	if cfg.RemoteTokenFile != "/before" || cfg.RemoteCA != filepath.Join(here, "a") || time.Duration(cfg.WebsocketClockSkew) != 7*time.Second ||
		cfg.AgentIdentity != "on" || !slices.Equal(cfg.ExecutorLabels, []string{"a=b,c", "d=e"}) {
		t.Errorf("got %+v", cfg)
	}
	overrides.Apply(parse(t, "--ca", "", "--identity=false"), &cfg)
	if cfg.RemoteCA != "" || cfg.AgentIdentity != "off" {
		t.Errorf("got %+v", cfg)
	}
}

func TestOverrides_RenameSettingsIfUsed(t *testing.T) {
	const text = "remote_token_file and agent_identity exclude each other"
	if got, used := overrides.Rename(parse(t), text); used || got != text {
		t.Errorf("without flags: %q, %v", got, used)
	}
	if got, used := overrides.Rename(parse(t, "--label", "x"), text); !used || got != "--token and --identity exclude each other" {
		t.Errorf("with flags: %q, %v", got, used)
	}
}

func TestLog_FollowsFlags(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	log := AddServerLog(f)
	if err := f.Parse([]string{"--log-format", "json", "--log-level", "warn"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logger, err := log.Logger(&out)
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("hidden")
	logger.Warn("shown")
	if !strings.Contains(out.String(), `"msg":"shown"`) || strings.Contains(out.String(), "hidden") {
		t.Errorf("got %q", &out)
	}
}
