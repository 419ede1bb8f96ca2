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

// embed makes a daemon with a changed configuration.
func embed(t *testing.T, change func(*config.Config)) *embedded {
	t.Helper()
	e := &embedded{log: &buffer{}}
	cfg := config.Default()
	change(&cfg)
	var err error
	if e.Daemon, err = daemon.New(cfg, daemon.Options{Logger: slog.New(slog.NewTextHandler(e.log, nil))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, errors.New("the test hangs"))
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

// writeFile makes a file for a test.
func writeFile(t *testing.T, mode os.FileMode, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// The programs that are given for bubblewrap: nothing, one that does not confine, and one that fails.
func fakes(t *testing.T) map[string]string {
	return map[string]string{
		"no such file":             filepath.Join(t.TempDir(), "bwrap"),
		"a confined program could": writeFile(t, 0o755, "bwrap", "#!/bin/sh\nshift 3; exec bwrap --bind / / --dev /dev --cap-add ALL -- \"$@\"\n"),
		"it is broken":             writeFile(t, 0o755, "bwrap", "#!/bin/sh\necho it is broken >&2; exit 1\n"),
	}
}

func TestTheEnvironmentSaysWhatSandboxesWork(t *testing.T) {
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
			said := embed(t, test.change).environment(t)
			if !slices.Equal(said.GetSandboxBackends(), test.works) || said.GetRequiredSandbox() != nil ||
				slices.Contains(said.GetFeatures(), execwirev1.Feature_FEATURE_SANDBOX) != (len(test.works) > 0) {
				t.Errorf("%v, features %v", said.GetSandboxBackends(), said.GetFeatures())
			}
			if len(said.GetSandboxes()) != 2 || said.GetSandboxes()[0].GetBackend() != bubblewrap || said.GetSandboxes()[1].GetBackend() != landlock {
				t.Fatalf("statuses %v", said.GetSandboxes())
			}
			for i, status := range said.GetSandboxes() {
				problem := test.problems[i]
				if status.GetWorks() != (problem == "") || !strings.Contains(status.GetProblem(), problem) || problem == "" && status.GetProblem() != "" {
					t.Errorf("%v, want %q", status, problem)
				}
			}
		})
	}
	for problem, path := range fakes(t) {
		said := embed(t, func(c *config.Config) { c.Bubblewrap = path }).environment(t)
		status := said.GetSandboxes()[0]
		if status.GetWorks() || !strings.Contains(status.GetProblem(), problem) || status.GetProgram() != path && problem != "no such file" {
			t.Errorf("%s: %v, want %q", path, status, problem)
		}
	}
}

// A policy that cannot be enforced, or read, or trusted stops the start.
func TestAServerThatCannotRequireItsSandboxDoesNotStart(t *testing.T) {
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
		"no file":        {require("/nonexistent/policy.json"), []string{"/nonexistent/policy.json cannot be opened"}},
		"anybody's file": {file(0o666, confines), []string{"can be written by others", "chmod go-w"}},
		"no JSON":        {file(0o600, "managed"), []string{"is no SandboxPolicy"}},
		"a typing error": {file(0o600, strings.Replace(confines, "restricted", "restrcted", 1)), []string{"is no SandboxPolicy", "restrcted"}},
		"other capitals": {file(0o600, strings.Replace(confines, "fileSystem", "FileSystem", 1)), []string{"is no SandboxPolicy", "FileSystem"}},
		"a key twice":    {file(0o600, strings.Replace(confines, `{"managed":{`, `{"managed":{"network":"NETWORK_ACCESS_RESTRICTED","network":"NETWORK_ACCESS_ENABLED",`, 1)), []string{"is no SandboxPolicy", "network"}},
		"a key and its other name": {file(0o600, strings.Replace(confines, `{"managed":{`, `{"managed":{"workspaceRoots":[],"workspace_roots":["/"],`, 1)),
			[]string{"is no SandboxPolicy", "workspace_roots"}},
		"no policy":   {file(0o600, `{}`), []string{"say managed, disabled or external"}},
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
				t.Fatal("it starts")
			}
			var typed *config.Error
			if !errors.As(err, &typed) || typed.Setting != "require_sandbox" {
				t.Errorf("%v does not name the setting", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
	e := embed(t, file(0o600, confines))
	if want := (client.Sandbox{}).Policy(); !proto.Equal(e.environment(t).GetRequiredSandbox().GetManaged().GetFileSystem(), want.GetManaged().GetFileSystem()) {
		t.Errorf("requires %v", e.environment(t).GetRequiredSandbox())
	}
}

func TestTheWordsForARequiredSandbox(t *testing.T) {
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
			said := e.environment(t)
			if !proto.Equal(said.GetRequiredSandbox(), test.want.Policy()) {
				t.Errorf("requires %v", said.GetRequiredSandbox())
			}
			if http := slices.Contains(said.GetFeatures(), execwirev1.Feature_FEATURE_HTTP); http != test.want.Network {
				t.Errorf("requests over HTTP: %v", http)
			}
			if tells := strings.Contains(e.log.String(), "require_sandbox restricts the network"); tells == test.want.Network {
				t.Errorf("the log says %s", e.log)
			}
		})
	}
}

// The log of a server tells what works, also if nobody asks.
func TestTheLogTellsWhatSandboxesWork(t *testing.T) {
	o := open(t, func(c *config.Config) { c.SandboxBackends = []string{"landlock"} })
	eventually(t, "the log tells of both", func() bool {
		said := o.log.String()
		return strings.Contains(said, `msg="a sandbox works" backend=landlock`) &&
			strings.Contains(said, `msg="a sandbox does not work" backend=bubblewrap reason="it is switched off by the configuration"`)
	})
	if bytes.Count([]byte(o.log.String()), []byte("a sandbox ")) != 2 {
		t.Errorf("the log says %s", o.log)
	}
}

// eventually polls until holds does. what completes "waited in vain until".
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// What cannot be confined is refused, and nothing of it happens.
func TestRequiredSandbox_WithoutBackend_StartsNothing(t *testing.T) {
	changes := map[string]func(*config.Config){
		"switched off":     func(c *config.Config) { c.SandboxBackends = []string{"off"} },
		"no bwrap in PATH": func(c *config.Config) { c.SandboxBackends = []string{"bubblewrap"} },
	}
	for problem, path := range fakes(t) {
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
			for what, err := range map[string]error{"a start": start("confined", "started", policy), "a call about files": write("written", policy)} {
				if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE {
					t.Errorf("%s: %v", what, err)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it made %v, %v", left, err)
			}
			if err := errors.Join(start("free", "started", nil), write("written", nil)); err != nil {
				t.Errorf("without a sandbox: %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("without a sandbox there are %v, %v", left, err)
			}
		})
	}
}

// A helper that does not end by itself, as one whose file system does not answer, is
// ended with the server, which does not give up on it first.
func TestAServerEndsWithAHelperThatHangs(t *testing.T) {
	e, dir := embed(t, func(c *config.Config) { c.SandboxBackends = []string{"landlock"} }), t.TempDir()
	policy := client.Sandbox{}.Policy()
	if _, err := client.New(e.Conn()).Files().GetMetadata(e.ctx, &execwirev1.GetMetadataRequest{Path: dir, Sandbox: policy}); err != nil {
		t.Fatal(err)
	}
	pid := childCalled(t, "execwire-file-worker")
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the helper goes on: %v", err)
	}
}

// childCalled finds the child of this program that has a name.
func childCalled(t *testing.T, name string) (pid int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat") // a child may change threads, and then their lists may all miss it
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, _ := os.ReadFile(path) // of a process that has ended there is none
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
