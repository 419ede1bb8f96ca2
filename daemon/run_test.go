package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/relay/executor"
)

// ran is a daemon that runs in the test.
type ran struct {
	urls <-chan string
	done <-chan error
	stop func()
}

// run runs a daemon with a function until the test ends.
func run(t *testing.T, options daemon.Options, serve func(ctx context.Context, options daemon.Options) error) *ran {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	urls, done, over := make(chan string, 4), make(chan error, 1), make(chan struct{})
	options.OnListen = func(url string) { urls <- url }
	go func() {
		defer close(over)
		done <- serve(ctx, options)
	}()
	t.Cleanup(func() { stop(errors.New("the test is over")); <-over })
	return &ran{urls: urls, done: done, stop: func() { stop(errors.New("SIGTERM")) }}
}

// url returns where the daemon listens.
func (r *ran) url(t *testing.T) string {
	t.Helper()
	select {
	case url := <-r.urls:
		return url
	case err := <-r.done:
		t.Fatalf("it ended with %v", err)
		return ""
	}
}

func hello(t *testing.T, c *client.Client) {
	t.Helper()
	out, err := c.Output(t.Context(), client.Command{Argv: []string{"/bin/sh", "-c", "echo hello $CODEX_ACCESS_TOKEN"}, Dir: "/", InheritEnv: execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL})
	if string(out) != "hello\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// Processes do not get a token for client commands, even if they ask for secrets.
func TestRun_DoesNotPassTokenOn(t *testing.T) {
	t.Setenv("EXECWIRE_TOKEN", "secret")
	t.Setenv("EXECWIRE_TOKEN_FILE", "/token")
	cfg := daemon.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(t.TempDir(), "s")}
	r := run(t, daemon.Options{}, func(ctx context.Context, options daemon.Options) error { return daemon.Run(ctx, cfg, options) })
	c, err := client.Dial(t.Context(), r.url(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	request := client.Command{Argv: []string{"/bin/sh", "-c", "echo \"<$EXECWIRE_TOKEN$EXECWIRE_TOKEN_FILE>\""}, Dir: "/", InheritEnv: execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL}.Request()
	request.GetCommand().GetDirect().GetEnvironmentPolicy().IgnoreDefaultExcludes = true
	process, err := c.Start(t.Context(), client.StartOptions{Process: request})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Close() }()
	var out []byte
	for event, err := range process.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if output, ok := event.(*client.OutputEvent); ok {
			out = append(out, output.Data...)
		}
	}
	if string(out) != "</token>\n" {
		t.Errorf("the process has %q", out)
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestRun_ServesUntilContextEnds(t *testing.T) {
	cfg := daemon.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(t.TempDir(), "s")}
	r := run(t, daemon.Options{}, func(ctx context.Context, options daemon.Options) error { return daemon.Run(ctx, cfg, options) })
	c, err := client.Dial(t.Context(), r.url(t))
	if err != nil {
		t.Fatal(err)
	}
	hello(t, c)
	_ = c.Close()
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v", err)
	}
	cfg.Listen = []string{"unix:///nonexistent/s"}
	if err := daemon.Run(t.Context(), cfg, daemon.Options{}); !errors.As(err, new(*daemon.ListenURLError)) {
		t.Errorf("with an address that is not local: %v", err)
	}
	cfg.Cgroup = "somewhere"
	if err := daemon.Run(t.Context(), cfg, daemon.Options{}); !errors.As(err, new(*daemon.ConfigError)) {
		t.Errorf("with a bad setting: %v", err)
	}
}

// An executor is reached through its relay, and by a listener if it has one. Its processes
// do not get its credentials for the registry.
func TestRunExecutor(t *testing.T) {
	t.Setenv("CODEX_EXEC_SERVER_REMOTE_BEARER_TOKEN", "secret-token")
	t.Setenv("CODEX_ACCESS_TOKEN", "secret-identity")
	registry := hub(t, false)
	remote := daemon.RemoteExecutor{URL: registry, ID: "here", Name: "Here", Labels: map[string]string{"b": "2", "a": "1"},
		Listen: []string{"unix://" + filepath.Join(t.TempDir(), "s")}}
	cfg := daemon.DefaultConfig()
	r := run(t, daemon.Options{}, func(ctx context.Context, options daemon.Options) error {
		return daemon.RunExecutor(ctx, remote, cfg, options)
	})
	near, err := client.Dial(t.Context(), r.url(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	hello(t, near)
	o := &opened{t: t, ctx: t.Context()}
	if e := o.awaitExecutor(registry); e.ID != "here" || e.Name != "Here" || len(e.Labels) != 2 || e.Labels["b"] != "2" {
		t.Errorf("the hub lists %+v", e)
	}
	hello(t, o.through(registry))
	if cfg.RemoteURL != "" {
		t.Error("the configuration was changed")
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("RunExecutor = %v", err)
	}
}

func TestRunExecutor_InvalidOptions_Fail(t *testing.T) {
	for name, want := range map[string]struct {
		remote daemon.RemoteExecutor
		text   string
	}{
		"no registry":    {daemon.RemoteExecutor{ID: "here"}, "remote is needed"},
		"bad registry":   {daemon.RemoteExecutor{URL: "wss://x", ID: "here"}, "remote is no address"},
		"no id":          {daemon.RemoteExecutor{URL: "http://127.0.0.1:1"}, "executor_id is needed"},
		"a bad label":    {daemon.RemoteExecutor{URL: "http://127.0.0.1:1", ID: "here", Labels: map[string]string{"": "x"}}, "KEY=VALUE"},
		"no authorities": {daemon.RemoteExecutor{URL: "http://127.0.0.1:1", ID: "here", CA: "/nonexistent"}, "/nonexistent"},
	} {
		err := daemon.RunExecutor(t.Context(), want.remote, daemon.DefaultConfig(), daemon.Options{})
		if !errors.As(err, new(*daemon.ConfigError)) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := daemon.DefaultConfig()
	cfg.RemoteTokenFile = "/nonexistent/token"
	err := daemon.RunExecutor(t.Context(), daemon.RemoteExecutor{URL: "http://127.0.0.1:1", ID: "here"}, cfg, daemon.Options{})
	if !errors.As(err, new(*executor.CredentialsError)) || !strings.Contains(err.Error(), "/nonexistent/token") {
		t.Errorf("a missing token: %v", err)
	}
}

// Documents and programs rely on these URLs.
func TestDefaultListenURLs(t *testing.T) {
	if got := daemon.DefaultConfig().Listen; !slices.Equal(got, []string{daemon.DefaultListenURL}) {
		t.Errorf("a daemon listens at %q", got)
	}
	for _, raw := range []string{daemon.DefaultListenURL} {
		if u, err := daemon.ParseListenURL(raw); err != nil || u.String() != raw {
			t.Errorf("%s is parsed as %v, %v", raw, u, err)
		}
	}
	_, err := daemon.ParseListenURL("http://127.0.0.1:1")
	if wrong := new(daemon.ListenURLError); !errors.As(err, &wrong) || wrong.Kind != daemon.ListenURLMalformed || wrong.URL != "http://127.0.0.1:1" {
		t.Errorf("http://: %v", err)
	}
	if _, err := daemon.LoadConfig("/nonexistent", nil); !errors.As(err, new(*daemon.ConfigError)) {
		t.Errorf("a missing file: %v", err)
	}
}
