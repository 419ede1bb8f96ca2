package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

const (
	bubblewrap = execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP
	landlock   = execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK
)

// embedded is a daemon without listeners.
type embedded struct {
	*daemon.Daemon
	ctx context.Context
	log *buffer
}

// embed creates a daemon with a modified configuration.
func embed(t *testing.T, change func(*config.Config)) *embedded {
	t.Helper()
	e := &embedded{log: &buffer{}}
	cfg := config.Default()
	change(&cfg)
	var err error
	if e.Daemon, err = daemon.New(cfg, daemon.Options{Logger: slog.New(slog.NewTextHandler(e.log, nil))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), testTimeout, errors.New("the test hangs"))
	e.ctx = ctx
	t.Cleanup(func() {
		cancel()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *embedded) environment(t *testing.T) *execwirev1.GetEnvironmentResponse {
	t.Helper()
	answer, err := execwirev1.NewEnvironmentServiceClient(e.Conn()).GetEnvironment(e.ctx, &execwirev1.GetEnvironmentRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// writeFile creates a file.
func writeFile(t *testing.T, mode os.FileMode, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeBubblewraps returns programs for bubblewrap: a missing one, one that does not confine, and one
// that fails.
func fakeBubblewraps(t *testing.T) map[string]string {
	return map[string]string{
		"no such file":             filepath.Join(t.TempDir(), "bwrap"),
		"a confined program could": writeFile(t, 0o755, "bwrap", "#!/bin/sh\nshift 3; exec bwrap --bind / / --dev /dev --cap-add ALL -- \"$@\"\n"),
		"it is broken":             writeFile(t, 0o755, "bwrap", "#!/bin/sh\necho it is broken >&2; exit 1\n"),
	}
}

func TestGetEnvironment_ReportsSandboxes(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*config.Config)
		works    []execwirev1.SandboxBackend
		problems []string
	}{
		"both":       {func(*config.Config) {}, []execwirev1.SandboxBackend{bubblewrap, landlock}, []string{"", ""}},
		"bubblewrap": {func(c *config.Config) { c.SandboxBackends = []string{"bubblewrap"} }, []execwirev1.SandboxBackend{bubblewrap}, []string{"", "switched off"}},
		"landlock":   {func(c *config.Config) { c.SandboxBackends = []string{"landlock"} }, []execwirev1.SandboxBackend{landlock}, []string{"switched off", ""}},
		"neither":    {func(c *config.Config) { c.SandboxBackends = []string{"off"} }, nil, []string{"switched off", "switched off"}},
	} {
		t.Run(name, func(t *testing.T) {
			environment := embed(t, test.change).environment(t)
			if !slices.Equal(environment.GetSandboxBackends(), test.works) || environment.GetRequiredSandbox() != nil ||
				slices.Contains(environment.GetFeatures(), execwirev1.Feature_FEATURE_SANDBOX) != (len(test.works) > 0) {
				t.Errorf("%v, features %v", environment.GetSandboxBackends(), environment.GetFeatures())
			}
			if len(environment.GetSandboxes()) != 2 || environment.GetSandboxes()[0].GetBackend() != bubblewrap || environment.GetSandboxes()[1].GetBackend() != landlock {
				t.Fatalf("statuses %v", environment.GetSandboxes())
			}
			for i, status := range environment.GetSandboxes() {
				problem := test.problems[i]
				if status.GetWorks() != (problem == "") || !strings.Contains(status.GetProblem(), problem) || problem == "" && status.GetProblem() != "" {
					t.Errorf("%v, want %q", status, problem)
				}
			}
		})
	}
	for problem, path := range fakeBubblewraps(t) {
		environment := embed(t, func(c *config.Config) { c.Bubblewrap = path }).environment(t)
		status := environment.GetSandboxes()[0]
		if status.GetWorks() || !strings.Contains(status.GetProblem(), problem) || status.GetProgram() != path && problem != "no such file" {
			t.Errorf("%s: %v, want %q", path, status, problem)
		}
	}
}

// The server does not start if the required policy cannot be enforced, read or trusted.
func TestRequiredSandbox_NotEnforceable_FailsStart(t *testing.T) {
	const confines = `{"managed":{"fileSystem":{"restricted":{"entries":[{"special":{"kind":"SPECIAL_PATH_KIND_ROOT"},"access":"SANDBOX_ACCESS_READ"}]}}}}`
	require := func(policy string) func(*config.Config) {
		return func(c *config.Config) { c.RequiredSandbox = policy }
	}
	file := func(mode os.FileMode, text string) func(*config.Config) {
		return require(writeFile(t, mode, "policy.json", text))
	}
	for name, test := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"no backend": {func(c *config.Config) { c.RequiredSandbox, c.SandboxBackends = "read-only", []string{"off"} },
			[]string{"bubblewrap: it is switched off", "landlock: it is switched off", "execwire doctor"}},
		"none that can": {func(c *config.Config) {
			c.RequiredSandbox, c.SandboxWritableRoots = "workspace-write", []string{t.TempDir()}
			c.SandboxBackends = []string{"landlock"}
		}, []string{"bubblewrap: it is switched off", "landlock: it cannot"}},
		"no bwrap": {func(c *config.Config) {
			c.RequiredSandbox, c.SandboxBackends, c.Bubblewrap = "read-only", []string{"bubblewrap"}, "/nonexistent/bwrap"
		}, []string{"no such file"}},
		"no file":                 {require("/nonexistent/policy.json"), []string{"/nonexistent/policy.json cannot be opened"}},
		"file writable by others": {file(0o666, confines), []string{"can be written by others", "chmod go-w"}},
		"no JSON":                 {file(0o600, "managed"), []string{"is no SandboxPolicy"}},
		"a misspelt key":          {file(0o600, strings.Replace(confines, "restricted", "restrcted", 1)), []string{"is no SandboxPolicy", "restrcted"}},
		"a key in other case":     {file(0o600, strings.Replace(confines, "fileSystem", "FileSystem", 1)), []string{"is no SandboxPolicy", "FileSystem"}},
		"a key twice":             {file(0o600, strings.Replace(confines, `{"managed":{`, `{"managed":{"network":"NETWORK_ACCESS_RESTRICTED","network":"NETWORK_ACCESS_ENABLED",`, 1)), []string{"is no SandboxPolicy", "network"}},
		"a key and its other name": {file(0o600, strings.Replace(confines, `{"managed":{`, `{"managed":{"workspaceRoots":[],"workspace_roots":["/"],`, 1)),
			[]string{"is no SandboxPolicy", "workspace_roots"}},
		"no policy":   {file(0o600, `{}`), []string{"set managed, disabled or external"}},
		"disabled":    {file(0o600, `{"disabled":{}}`), []string{"confines nothing"}},
		"external":    {file(0o600, `{"external":{}}`), []string{"confines nothing"}},
		"everything":  {file(0o600, `{"managed":{"fileSystem":{"unrestricted":{}},"network":"NETWORK_ACCESS_ENABLED"}}`), []string{"confines nothing"}},
		"a bad entry": {file(0o600, `{"managed":{"fileSystem":{"restricted":{"entries":[{"path":"x","access":"SANDBOX_ACCESS_READ"}]}}}}`), []string{"entries[0].path", "not absolute"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			test.change(&cfg)
			d, err := daemon.New(cfg, daemon.Options{})
			if err == nil {
				_ = d.Close()
				t.Fatal("the server starts")
			}
			var typed *config.Error
			if !errors.As(err, &typed) || typed.Setting != "require_sandbox" {
				t.Errorf("%v does not name the setting", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not contain %q", err, want)
				}
			}
		})
	}
	e := embed(t, file(0o600, confines))
	if want := (client.Sandbox{}).Policy(); !proto.Equal(e.environment(t).GetRequiredSandbox().GetManaged().GetFileSystem(), want.GetManaged().GetFileSystem()) {
		t.Errorf("requires %v", e.environment(t).GetRequiredSandbox())
	}
}

func TestRequiredSandbox_NamedPolicies(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		change func(*config.Config)
		want   client.Sandbox
	}{
		"read-only":                {func(c *config.Config) { c.RequiredSandbox = "read-only" }, client.Sandbox{}},
		"read-only with a network": {func(c *config.Config) { c.RequiredSandbox, c.SandboxNetwork = "read-only", "on" }, client.Sandbox{Network: true}},
		"workspace-write":          {func(c *config.Config) { c.RequiredSandbox, c.SandboxWritableRoots = "workspace-write", []string{dir} }, client.Sandbox{Writable: []string{dir}, Temporary: true}},
		"workspace-write with no network": {func(c *config.Config) {
			c.RequiredSandbox, c.SandboxWritableRoots, c.SandboxNetwork = "workspace-write", []string{dir}, "off"
		}, client.Sandbox{Writable: []string{dir}, Temporary: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := embed(t, test.change)
			environment := e.environment(t)
			if !proto.Equal(environment.GetRequiredSandbox(), test.want.Policy()) {
				t.Errorf("requires %v", environment.GetRequiredSandbox())
			}
			if http := slices.Contains(environment.GetFeatures(), execwirev1.Feature_FEATURE_HTTP); http != test.want.Network {
				t.Errorf("requests over HTTP: %v", http)
			}
			if logged := strings.Contains(e.log.String(), "require_sandbox restricts the network"); logged == test.want.Network {
				t.Errorf("the log is %s", e.log)
			}
		})
	}
}

// The log reports the state of the backends at the start.
func TestLog_ReportsSandboxes(t *testing.T) {
	o := open(t, func(c *config.Config) { c.SandboxBackends = []string{"landlock"} })
	eventually(t, "the log has both backends", func() bool {
		environment := o.log.String()
		return strings.Contains(environment, `msg="a sandbox works" backend=landlock`) &&
			strings.Contains(environment, `msg="a sandbox does not work" backend=bubblewrap reason="it is switched off by the configuration"`)
	})
	if bytes.Count([]byte(o.log.String()), []byte("a sandbox ")) != 2 {
		t.Errorf("the log is %s", o.log)
	}
}

// eventually polls until holds returns true. what names the condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}

// Calls that cannot be confined fail without effect.
func TestRequiredSandbox_WithoutBackend_StartsNothing(t *testing.T) {
	changes := map[string]func(*config.Config){
		"switched off":     func(c *config.Config) { c.SandboxBackends = []string{"off"} },
		"no bwrap in PATH": func(c *config.Config) { c.SandboxBackends = []string{"bubblewrap"} },
	}
	for problem, path := range fakeBubblewraps(t) {
		changes[problem] = func(c *config.Config) { c.SandboxBackends, c.Bubblewrap = []string{"bubblewrap"}, path }
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			if name == "no bwrap in PATH" {
				t.Setenv("PATH", t.TempDir())
			}
			e, dir := embed(t, change), t.TempDir()
			policy := client.Sandbox{Writable: []string{dir}}.Policy()
			start := func(id, file string, policy *execwirev1.SandboxPolicy) error {
				_, err := client.New(e.Conn()).Run(e.ctx, client.RunOptions{Process: &execwirev1.StartProcessRequest{
					ProcessId: id,
					Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
						Argv: []string{"/bin/sh", "-c", ": >" + file}, WorkingDirectory: dir, Sandbox: policy,
					}}}}})
				return err
			}
			write := func(file string, policy *execwirev1.SandboxPolicy) error {
				_, err := client.New(e.Conn()).Files().WriteFile(e.ctx, &execwirev1.WriteFileRequest{Path: dir + "/" + file, Sandbox: policy})
				return err
			}
			for what, err := range map[string]error{"a start": start("confined", "started", policy), "a file call": write("written", policy)} {
				if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE {
					t.Errorf("%s: %v", what, err)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the calls created %v, %v", left, err)
			}
			if err := errors.Join(start("free", "started", nil), write("written", nil)); err != nil {
				t.Errorf("without a sandbox: %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("without a sandbox the files are %v, %v", left, err)
			}
		})
	}
}

// A worker that does not end by itself, for example because its file system does not
// answer, is killed when the server closes, and Close succeeds.
func TestClose_HangingFileWorker_IsKilled(t *testing.T) {
	e, dir := embed(t, func(c *config.Config) { c.SandboxBackends = []string{"landlock"} }), t.TempDir()
	policy := client.Sandbox{}.Policy()
	if _, err := client.New(e.Conn()).Files().GetMetadata(e.ctx, &execwirev1.GetMetadataRequest{Path: dir, Sandbox: policy}); err != nil {
		t.Fatal(err)
	}
	pid := findChild(t, "execwire-file-worker")
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the worker still runs: %v", err)
	}
}

// findChild returns the child of this process with a name.
func findChild(t *testing.T, name string) (pid int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat") // the lists of children per thread can miss a child
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, _ := os.ReadFile(path) // it is missing if the process has ended
		argv, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
		if called, _, _ := strings.Cut(string(argv), "\x00"); called != name {
			continue
		}
		var child, parent int
		_, _ = fmt.Sscan(string(stat), &child)
		_, _ = fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %1s %d", new(string), &parent)
		if parent == os.Getpid() {
			pid = child
		}
	}
	if pid == 0 {
		t.Fatalf("there is no child called %s", name)
	}
	return pid
}
