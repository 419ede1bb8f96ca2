package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// doctor runs the command with variables and returns the checks by name.
func doctor(t *testing.T, variables []string, arguments ...string) (map[string]check, result) {
	t.Helper()
	c := command(t, append([]string{"doctor", "--json"}, arguments...)...)
	c.Env = append(c.Env, variables...)
	got := runCommand(t, c)
	checks := map[string]check{}
	for line := range strings.Lines(got.out) {
		var one check
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		checks[one.Check] = one
	}
	return checks, got
}

// Both for this machine and for a server with other settings.
func TestDoctor_ReportsFeatures(t *testing.T) {
	server := startServerWith(t, []string{"EXECWIRE_SANDBOX_BACKENDS=landlock", "EXECWIRE_REQUIRE_SANDBOX=read-only"}, "unix://"+filepath.Join(t.TempDir(), "s"))
	for name, test := range map[string]struct {
		variables, arguments []string
		works, fails         []string
		code                 int
		wantText             string // detail of require-sandbox
	}{
		"here": {nil, []string{"--require", "sandbox", "--require", "landlock"},
			[]string{"sandbox", "bubblewrap", "landlock", "guardian", "require-sandbox", "loopback-users", "descriptors"}, nil, 0, "none"},
		"switched off": {[]string{"EXECWIRE_SANDBOX_BACKENDS=off", "EXECWIRE_GUARDIAN=off"}, nil,
			[]string{"require-sandbox"}, []string{"sandbox", "bubblewrap", "landlock", "guardian"}, 0, "none"},
		"every user": {[]string{"EXECWIRE_LOOPBACK_USERS=any"}, []string{"--require", "loopback-users"},
			[]string{"require-sandbox"}, []string{"loopback-users"}, 1, "none"},
		"required": {[]string{"EXECWIRE_SANDBOX_BACKENDS=off"}, []string{"--require", "landlock", "--require", "sandbox"},
			nil, []string{"sandbox"}, 1, "none"},
		"one of two": {[]string{"EXECWIRE_SANDBOX_BACKENDS=bubblewrap"}, []string{"--require", "sandbox"},
			[]string{"sandbox", "bubblewrap"}, []string{"landlock"}, 0, "none"},
		"a floor without a floor": {[]string{"EXECWIRE_SANDBOX_BACKENDS=off", "EXECWIRE_REQUIRE_SANDBOX=read-only"}, []string{"--require", "require-sandbox"},
			nil, []string{"require-sandbox", "sandbox"}, 1, "nothing on this machine can enforce"},
		"a server": {nil, []string{"--server", server.urls[0]},
			[]string{"sandbox", "landlock", "guardian", "require-sandbox", "loopback-users"}, []string{"bubblewrap"}, 0, "everything is confined"},
		"not of a server": {nil, []string{"--server", server.urls[0], "--require", "watches"}, []string{"sandbox"}, nil, 1, "everything is confined"},
	} {
		t.Run(name, func(t *testing.T) {
			checks, got := doctor(t, test.variables, test.arguments...)
			if got.code != test.code || got.errOut != "" {
				t.Errorf("exit code %d, stderr %q", got.code, got.errOut)
			}
			for _, name := range slices.Concat(test.works, test.fails) {
				if c, there := checks[name]; !there || c.Works != slices.Contains(test.works, name) || !c.Works && c.Detail == "" || c.Works && c.Fix != "" {
					t.Errorf("%s: %+v", name, c)
				}
			}
			if detail := checks[checkRequired].Detail; !strings.Contains(detail, test.wantText) {
				t.Errorf("require-sandbox is %q, want %q", detail, test.wantText)
			}
		})
	}
	got := runCommand(t, command(t, "doctor"))
	if got.code != 0 || !strings.Contains(got.out, "bubblewrap: works: /usr/bin/bwrap\n") || !strings.Contains(got.out, "landlock: works\n") {
		t.Errorf("exit code %d, stdout %q", got.code, got.out)
	}
}

// Settings of a machine that disable bubblewrap are reported with a fix.
func TestDoctor_Bubblewrap_ReportsFix(t *testing.T) {
	for setting, value := range map[string]string{
		"user/max_user_namespaces":                     "0",
		"kernel/unprivileged_userns_clone":             "0",
		"kernel/apparmor_restrict_unprivileged_userns": "1",
	} {
		root := t.TempDir()
		path := filepath.Join(root, "proc/sys", setting)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(value+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		status := &execwirev1.SandboxStatus{Backend: execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP, Program: "/usr/bin/bwrap", Problem: "bwrap: no permissions"}
		if fix := (machine{root: root}).sandboxFix(status); !strings.Contains(fix, "sysctl "+strings.ReplaceAll(setting, "/", ".")+"=") {
			t.Errorf("%s: %q", setting, fix)
		}
		if fix := unknownMachine.sandboxFix(status); !strings.Contains(fix, "container") {
			t.Errorf("with other settings: %q", fix)
		}
	}
	root := t.TempDir()
	if c := (machine{root: root}).watches(); c.Works || !strings.Contains(c.Fix, "fs.inotify.max_user_watches") {
		t.Errorf("a kernel without inotify: %+v", c)
	}
}

// A server without information is not reported as one where nothing works.
func TestDoctor_ServerWithoutInformation_Fails(t *testing.T) {
	if checks, err := checksOfServer(&execwirev1.GetEnvironmentResponse{}); err == nil || len(checks) > 0 {
		t.Errorf("the checks are %v, %v", checks, err)
	}
	if checks, err := checksOfServer(&execwirev1.GetEnvironmentResponse{Limits: &execwirev1.ServerLimits{}}); err != nil || len(checks) == 0 {
		t.Errorf("the checks are %v, %v", checks, err)
	}
}
