package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server protects its memory from its own user, runs under a guardian and adopts
// orphans; sandboxes must work nevertheless, for root and other users.
func TestServe_Sandbox_WorksForEveryUser(t *testing.T) {
	users := []int{os.Getuid()}
	if os.Getuid() == 0 {
		users = append(users, nobody)
	}
	for _, uid := range users {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			s := newSecureServer(t, uid)
			dir := outsideTmp(t)
			if err := errors.Join(os.MkdirAll(dir+"/here/.git", 0o755), os.Mkdir(dir+"/other", 0o755)); err != nil {
				t.Fatal(err)
			}
			chown(t, dir, uid)
			script := fmt.Sprintf(`id -u; for f in here/f here/.git/f other/f; do (echo x >%s/$f) 2>/dev/null && echo $f; done
if test -e /proc/%d; then echo sees the server; fi; cat /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep PRINCIPALS_FILE; true`, dir, s.command.Process.Pid)
			got := s.run(uid, []string{"--sandbox", "workspace-write", "--cwd", dir + "/here", "--env-inherit", "none", "--env", "PATH=/usr/bin:/bin"}, script)
			if want := fmt.Sprintf("%d\nhere/f\n", uid); got != want {
				t.Errorf("the report is %q, want %q", got, want)
			}
			got = s.run(uid, []string{"--cwd", dir + "/here"}, fmt.Sprintf("(echo x >%s/other/f) && echo wrote", dir))
			if got != "wrote\n" {
				t.Errorf("without a sandbox the report is %q", got)
			}
		})
	}
}

// Requests can narrow the required sandbox of a server, but never widen it.
func TestServe_RequiredSandbox_IsNotWidened(t *testing.T) {
	dir := outsideTmp(t)
	err := errors.Join(os.MkdirAll(dir+"/root/.git", 0o755), os.Mkdir(dir+"/other", 0o755),
		os.WriteFile(dir+"/disabled.json", []byte(`{"disabled":{}}`), 0o644),
		os.WriteFile(dir+"/external.json", []byte(`{"external":{"network":"NETWORK_ACCESS_ENABLED"}}`), 0o644),
		os.WriteFile(dir+"/everything.json", []byte(`{"managed":{"fileSystem":{"unrestricted":{}},"network":"NETWORK_ACCESS_ENABLED"}}`), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	startServerWith(t, []string{"EXECWIRE_REQUIRE_SANDBOX=workspace-write", "EXECWIRE_SANDBOX_WRITABLE_ROOTS=" + dir + "/root"}, socket)
	for name, test := range map[string]struct {
		flags []string
		wrote string
	}{
		"no sandbox":        {nil, "root/f"},
		"disabled":          {[]string{"--sandbox", dir + "/disabled.json"}, "root/f"},
		"external":          {[]string{"--sandbox", dir + "/external.json"}, "root/f"},
		"everything":        {[]string{"--sandbox", dir + "/everything.json"}, "root/f"},
		"another directory": {[]string{"--sandbox", "workspace-write", "--writable", dir + "/other", "--network"}, ""},
		"both directories":  {[]string{"--sandbox", "workspace-write", "--writable", dir + "/other", "--writable", dir + "/root"}, "root/f"},
		"another TMPDIR":    {[]string{"--env", "TMPDIR=" + dir + "/other"}, "root/f"},
		"both of that":      {[]string{"--sandbox", "workspace-write", "--env", "TMPDIR=" + dir + "/other"}, ""},
		"less":              {[]string{"--sandbox", "read-only"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := append([]string{"run", "--server", socket, "--cwd", "/usr"}, test.flags...)
			got := runCommand(t, command(t, append(arguments, "--", "/bin/sh", "-c",
				"for f in root/f root/.git/f other/f; do (echo x >"+dir+"/$f) 2>/dev/null && echo $f; done; true")...))
			if output := strings.TrimSpace(got.out); got.code != 0 || output != test.wrote {
				t.Errorf("exit code %d, wrote %q, want %q; %s", got.code, output, test.wrote, got.errOut)
			}
		})
	}
	detached := runCommand(t, command(t, "run", "--server", socket, "--cwd", "/usr", "--detach", "--id", "p", "--", "sh", "-c", "echo x >"+dir+"/other/f"))
	if detached.code != 0 {
		t.Fatal(detached.errOut)
	}
	if waited := runCommand(t, command(t, "wait", "--server", socket, "p")); waited.code == 0 {
		t.Error("it wrote")
	}
	listed := runCommand(t, command(t, "ps", "-a", "--json", "--server", socket))
	var p processObject
	for line := range strings.Lines(listed.out) {
		var one processObject
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if one.ID == "p" {
			p = one
		}
	}
	want := sandboxObject{Backend: "bubblewrap", Network: "restricted", RestrictsFiles: true, HidesProcesses: true}
	if p.Sandbox == nil || *p.Sandbox != want || p.Exit == nil || !p.Exit.SandboxDenied {
		t.Errorf("ps prints %s", listed.out)
	}
	if table := runCommand(t, command(t, "ps", "-a", "--server", socket)); !strings.Contains(table.out, "(sandbox denied)") {
		t.Errorf("ps prints %s", table.out)
	}
}

// A server that cannot enforce its required sandbox does not start.
func TestServe_RequiredSandboxUnavailable_DoesNotStart(t *testing.T) {
	c := command(t, "serve", "--listen", "unix://"+filepath.Join(t.TempDir(), "s"))
	c.Env = append(c.Env, "EXECWIRE_REQUIRE_SANDBOX=read-only", "EXECWIRE_BUBBLEWRAP=/nonexistent/bwrap", "EXECWIRE_SANDBOX_BACKENDS=bubblewrap")
	got := runCommand(t, c)
	for _, text := range []string{"require_sandbox", "/nonexistent/bwrap", "switched off", "execwire doctor"} {
		if got.code != codeFailed || got.out != "" || !strings.Contains(got.errOut, text) {
			t.Errorf("exit code %d, stdout %q, stderr %q, want %q", got.code, got.out, got.errOut, text)
		}
	}
}
