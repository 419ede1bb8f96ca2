package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// outsideTmp returns a directory that is not writable in a sandbox by default, by its
// real path.
func outsideTmp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "execwire-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The process can write exactly where the flags permit it.
func TestRun_Sandbox_Writes(t *testing.T) {
	const attempts = `for f in here/f here/.git/f more/f other/f; do echo x >"$1/$f" && echo "$f"; done 2>/dev/null; cat "$1/readable"`
	for name, test := range map[string]struct {
		flags []string
		wrote string
	}{
		"none":               {nil, "here/f here/.git/f more/f other/f"},
		"read-only":          {[]string{"--sandbox", "read-only"}, ""},
		"workspace-write":    {[]string{"--sandbox", "workspace-write"}, "here/f"},
		"with --writable":    {[]string{"--sandbox", "workspace-write", "--writable", "DIR/more"}, "here/f more/f"},
		"a relative one":     {[]string{"--sandbox", "workspace-write", "--writable", "../more"}, "here/f more/f"},
		"with a file":        {[]string{"--sandbox", "DIR/policy.json"}, "more/f"},
		"a disabled policy":  {[]string{"--sandbox", "DIR/disabled.json"}, "here/f here/.git/f more/f other/f"},
		"with the network":   {[]string{"--sandbox", "read-only", "--network"}, ""},
		"both and read-only": {[]string{"--sandbox", "workspace-write", "--network"}, "here/f"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := outsideTmp(t)
			err := errors.Join(os.MkdirAll(dir+"/here/.git", 0o755), os.Mkdir(dir+"/more", 0o755), os.Mkdir(dir+"/other", 0o755),
				os.WriteFile(dir+"/readable", []byte("is read\n"), 0o644),
				os.WriteFile(dir+"/disabled.json", []byte(`{"disabled":{}}`), 0o644),
				os.WriteFile(dir+"/policy.json", []byte(`{"managed":{"fileSystem":{"restricted":{"entries":[
					{"special":{"kind":"SPECIAL_PATH_KIND_ROOT"},"access":"SANDBOX_ACCESS_READ"},
					{"path":"`+dir+`/more","access":"SANDBOX_ACCESS_WRITE"}]}}}}`), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			arguments := []string{"run"}
			for _, flag := range test.flags {
				arguments = append(arguments, strings.ReplaceAll(flag, "DIR", dir))
			}
			c := command(t, append(arguments, "--", "sh", "-c", attempts, "sh", dir)...)
			c.Dir = dir + "/here"
			got := runCommand(t, c)
			output := strings.Join(append(strings.Fields(test.wrote), "is read"), "\n") + "\n"
			if got.code != 0 || got.out != output || got.errOut != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", got.code, got.out, got.errOut, output)
			}
			for _, file := range []string{"here/f", "here/.git/f", "more/f", "other/f"} {
				_, err := os.Stat(filepath.Join(dir, file))
				if wrote := strings.Contains(" "+test.wrote+" ", " "+file+" "); wrote != (err == nil) {
					t.Errorf("%s: %v, want it written: %v", file, err, wrote)
				}
			}
		})
	}
}

// A process whose policy cannot be enforced does not start.
func TestRun_SandboxUnavailable_Fails(t *testing.T) {
	dir := outsideTmp(t)
	fake := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nshift 3; exec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, variables := range map[string][]string{
		"switched off":                    {"EXECWIRE_SANDBOX_BACKENDS=off"},
		"no bwrap":                        {"EXECWIRE_SANDBOX_BACKENDS=bubblewrap", "EXECWIRE_BUBBLEWRAP=" + dir + "/nothing"},
		"no bwrap in PATH":                {"EXECWIRE_SANDBOX_BACKENDS=bubblewrap", "PATH=" + dir + "/nowhere"},
		"a bwrap without effect":          {"EXECWIRE_SANDBOX_BACKENDS=bubblewrap", "EXECWIRE_BUBBLEWRAP=" + fake},
		"Landlock cannot protect what is": {"EXECWIRE_SANDBOX_BACKENDS=landlock"},
	} {
		t.Run(name, func(t *testing.T) {
			c := command(t, "run", "--sandbox", "workspace-write", "--", "/bin/sh", "-c", "echo ran; : >ran")
			c.Dir = outsideTmp(t)
			if err := os.Mkdir(c.Dir+"/.git", 0o755); err != nil {
				t.Fatal(err)
			}
			c.Env = append(c.Env, variables...)
			got := runCommand(t, c)
			if got.code != codeFailed || got.out != "" || !strings.Contains(got.errOut, "nothing on this machine can enforce the policy") ||
				!strings.Contains(got.errOut, "execwire doctor") {
				t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.out, got.errOut)
			}
			if _, err := os.Stat(c.Dir + "/ran"); err == nil {
				t.Error("it ran")
			}
		})
	}
}

func TestRun_EmptySandboxFlag_Fails(t *testing.T) {
	dir := t.TempDir()
	for _, flag := range [][]string{{"--sandbox", ""}, {"--sandbox="}} {
		c := command(t, append(append([]string{"run"}, flag...), "--", "/bin/sh", "-c", ": >ran")...)
		c.Dir = dir
		got := runCommand(t, c)
		if got.code == 0 || !strings.Contains(got.errOut, "--sandbox is empty") {
			t.Errorf("%q: exit code %d, stderr %q", flag, got.code, got.errOut)
		}
		if _, err := os.Stat(dir + "/ran"); err == nil {
			t.Errorf("%q: it ran", flag)
		}
	}
}

// A missing directory is not silently ignored.
func TestRun_MissingWritable_Fails(t *testing.T) {
	server := startServer(t, "unix://"+t.TempDir()+"/socket")
	dir := outsideTmp(t)
	for name, flags := range map[string][]string{
		"here": {"run"}, "of a server": {"run", "--server", server.urls[0], "--cwd", dir}, "detached": {"run", "--detach", "--server", server.urls[0], "--cwd", dir},
	} {
		c := command(t, append(flags, "--sandbox", "workspace-write", "--writable", dir, "--writable", dir+"/none", "--", "/bin/sh", "-c", ": >ran")...)
		c.Dir = dir
		got := runCommand(t, c)
		if got.code != codeFailed || got.out != "" || !strings.Contains(got.errOut, "--writable "+dir+"/none: there is no such directory") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, got.code, got.out, got.errOut)
		}
		if _, err := os.Stat(dir + "/ran"); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}

// At a terminal there is a hint.
func TestRun_SandboxDenied_Terminal_PrintsHint(t *testing.T) {
	dir := outsideTmp(t)
	policy := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"managed":{"fileSystem":{"restricted":{"entries":[
		{"special":{"kind":"SPECIAL_PATH_KIND_ROOT"},"access":"SANDBOX_ACCESS_READ"}]}}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags, variables []string
		want             string
	}{
		"read-only":       {flags: []string{"--sandbox", "read-only"}, want: "with --sandbox workspace-write, or network access with --network"},
		"workspace-write": {flags: []string{"--sandbox", "workspace-write", "--network"}, want: "with --writable DIR\r\n"},
		"file":            {flags: []string{"--sandbox", policy}, want: "allow more in " + policy},
		"required":        {variables: []string{"EXECWIRE_REQUIRE_SANDBOX=read-only"}, want: "the server requires this sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			master, slave, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			c := command(t, append(append([]string{"run"}, test.flags...), "--", "sh", "-c", "echo x >"+dir+"/f")...)
			c.Env, c.Stderr = append(c.Env, test.variables...), slave
			_ = c.Run()
			_ = slave.Close()
			output, _ := io.ReadAll(master) // it fails at the end
			if c.ProcessState.ExitCode() == 0 || !strings.Contains(string(output), "apparently denied") || !strings.Contains(string(output), test.want) {
				t.Errorf("the command ended with %v and wrote %q", c.ProcessState, output)
			}
		})
	}
}

// Without a terminal there is no message.
func TestRun_SandboxDenied_Pipe_PrintsNothing(t *testing.T) {
	c := command(t, "run", "--sandbox", "read-only", "--", "sh", "-c", "echo x >f")
	c.Dir = outsideTmp(t)
	got := runCommand(t, c)
	if got.code == 0 || strings.Contains(got.errOut, "execwire:") || !strings.Contains(strings.ToLower(got.errOut), "read-only file system") {
		t.Errorf("exit code %d, stderr %q", got.code, got.errOut)
	}
}
