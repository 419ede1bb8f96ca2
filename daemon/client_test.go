package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
)

// A URL selects the server; the rest of the API behaves the same.
func TestOpen_URL_SelectsServer(t *testing.T) {
	s := serve(t, "unix://"+filepath.Join(t.TempDir(), "s"), "grpc://127.0.0.1:0", "ws://127.0.0.1:0")
	for _, url := range append([]string{"", daemon.LocalURL}, s.urls...) {
		c, err := daemon.Open(s.ctx, url, daemon.OpenOptions{})
		if err != nil {
			t.Fatalf("%q: %v", url, err)
		}
		var environment client.Environment = c
		out, err := environment.Output(s.ctx, client.Command{Argv: []string{"/bin/sh", "-c", "echo hello"}, Dir: "/"})
		if string(out) != "hello\n" || err != nil {
			t.Errorf("%q: %q, %v", url, out, err)
		}
		file := filepath.Join(t.TempDir(), "file")
		_, err = environment.Upload(s.ctx, file, strings.NewReader("text"), client.UploadOptions{InPlace: true})
		if err != nil {
			t.Errorf("%q: %v", url, err)
		}
		if text, err := environment.ReadFile(s.ctx, file); string(text) != "text" || err != nil {
			t.Errorf("%q: %q, %v", url, text, err)
		}
		if err := environment.Close(); err != nil {
			t.Errorf("%q: Close = %v", url, err)
		}
		if _, err := environment.ReadFile(s.ctx, file); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%q: after Close a call returns %v", url, err)
		}
	}
}

func TestClose_EmbeddedServer_EndsProcesses(t *testing.T) {
	c, err := daemon.Open(t.Context(), "", daemon.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, errors.New("the test hangs"))
	defer cancel()
	printed := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, client.RunOptions{Process: command("/bin/sh", "-c", "echo $$; exec sleep 1000"), Stdout: writer(func(p []byte) {
			printed <- strings.TrimSpace(string(p))
		})})
		ended <- err
	}()
	pid := <-printed
	if err := c.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-ended; !errors.Is(err, client.ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
	if matches, err := filepath.Glob("/proc/" + pid + "/root"); err != nil || len(matches) > 0 {
		t.Errorf("process %s still exists", pid)
	}
}

// writer adapts a function to io.Writer.
type writer func(p []byte)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// A server inside the client honours the settings, except those about listeners and
// authentication.
func TestOpenWith_EmbeddedServer_HonoursSettings(t *testing.T) {
	cfg := daemon.DefaultConfig()
	cfg.Principals, cfg.Listen, cfg.DirectExec = "/nonexistent/principals.toml", []string{"unix:///nonexistent/s"}, "off"
	c, err := daemon.Open(t.Context(), daemon.LocalURL, daemon.OpenOptions{Config: &cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Output(t.Context(), client.Command{Argv: []string{"true"}, Dir: "/"}); err == nil || !strings.Contains(err.Error(), "direct") {
		t.Errorf("direct_exec=off: %v", err)
	}
	if cfg.Principals == "" {
		t.Error("the configuration was changed")
	}
	cfg.Cgroup = "somewhere"
	if _, err := daemon.Open(t.Context(), "", daemon.OpenOptions{Config: &cfg}); !errors.As(err, new(*config.Error)) {
		t.Errorf("a bad setting: %v", err)
	}
}

func TestOpen_InvalidURL_Fails(t *testing.T) {
	for _, url := range []string{"http://x", "local:elsewhere", "local"} {
		if _, err := daemon.Open(t.Context(), url, daemon.OpenOptions{}); !errors.As(err, new(*client.URLError)) {
			t.Errorf("%q: %v", url, err)
		}
	}
	nowhere := "unix://" + filepath.Join(t.TempDir(), "s")
	if _, err := daemon.Open(t.Context(), nowhere, daemon.OpenOptions{}); !errors.As(err, new(*client.DialError)) {
		t.Errorf("%q: %v", nowhere, err)
	}
	if _, err := daemon.Open(t.Context(), nowhere, daemon.OpenOptions{Dial: []client.Option{client.WithTokenFile("/nonexistent")}}); !errors.As(err, new(*client.CredentialError)) {
		t.Errorf("a missing token: %v", err)
	}
}
