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

func parse(arguments ...string) (*pflag.FlagSet, error) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddSettings(f, config.Settings(), map[string]string{"listen": "the `URL`"})
	return f, f.Parse(arguments)
}

func TestSettings_AreSetByFlags(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.RemoteTokenFile = "/before"
	f, err := parse("--remote-tls-ca", "a", "--ws-max-clock-skew", "7", "--max-grace=90m", "--agent-identity", "--executor-labels", "a=b,c=d", "--executor-labels", "e=f", "--frame-bytes", "1MiB")
	if err != nil {
		t.Fatal(err)
	}
	Apply(f, &cfg)
	if cfg.RemoteTokenFile != "/before" || cfg.RemoteCA != filepath.Join(here, "a") || time.Duration(cfg.WebsocketClockSkew) != 7*time.Second || time.Duration(cfg.MaxGrace) != 90*time.Minute ||
		cfg.AgentIdentity != "on" || !slices.Equal(cfg.ExecutorLabels, []string{"a=b", "c=d", "e=f"}) || cfg.Frame != 1<<20 {
		t.Errorf("got %+v", cfg)
	}
	if flag, isSet := Flag(f, "max_grace"); flag != "--max-grace" || !isSet {
		t.Errorf("max_grace is set by %q, %v", flag, isSet)
	}
	if f, err = parse("--remote-tls-ca", "", "--agent-identity=false", "--executor-labels="); err != nil {
		t.Fatal(err)
	}
	Apply(f, &cfg)
	if cfg.RemoteCA != "" || cfg.AgentIdentity != "off" || len(cfg.ExecutorLabels) > 0 {
		t.Errorf("got %+v", cfg)
	}
}

func TestSettings_InvalidFlags_AreErrors(t *testing.T) {
	for argument, want := range map[string]string{
		"--max-grace=x":         `invalid argument "x" for "--max-grace" flag: "x" is not a duration; write for example 30s, 1h30m, or a number of seconds`,
		"--max-grace=721h":      `invalid argument "721h" for "--max-grace" flag: is above 720h: the range is 0s to 720h`,
		"--frame-bytes=1":       `invalid argument "1" for "--frame-bytes" flag: is below 64KiB: the range is 64KiB to 1GiB`,
		"--agent-identity=yes":  `invalid argument "yes" for "--agent-identity" flag: cannot be "yes": write on or off`,
		"--sessions-total=many": `invalid argument "many" for "--sessions-total" flag: "many" is not a whole number`,
	} {
		if _, err := parse(argument); err == nil || err.Error() != want {
			t.Errorf("%s: %v", argument, err)
		}
	}
}

func TestExplain_NamesFlagsIfUsed(t *testing.T) {
	err := &config.Error{Setting: "remote_token_file", Problem: "and agent_identity need remote, on a remote /x/remote"}
	for _, test := range []struct{ argument, want string }{
		{"--listen=off", ""},
		{"--agent-identity", "--remote-token-file and --agent-identity need remote, on a remote /x/remote"},
		{"--remote=x", "--remote-token-file and --agent-identity need --remote, on a --remote /x/remote"},
	} {
		f, parsed := parse(test.argument)
		if parsed != nil {
			t.Fatal(parsed)
		}
		if got, used := Explain(f, err); used != (test.want != "") || used && got != test.want {
			t.Errorf("with %s: %q, %v", test.argument, got, used)
		}
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
