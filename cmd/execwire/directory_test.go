package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A process without a directory starts in the home directory of the server's user, and
// relative paths of files begin there, whatever the directory of the client is; in / if that
// does not exist. With a server inside the command it is the current directory.
func TestServer_DefaultDirectory(t *testing.T) {
	t.Parallel()
	home, err := filepath.EvalSymlinks(t.TempDir())
	home += "/h[1]" // which is no pattern
	if err == nil {
		err = os.Mkdir(home, 0o700)
	}
	if err == nil {
		err = os.WriteFile(home+"/f", []byte("text"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var here string // the server at home
	for _, server := range []struct{ home, want string }{{home + "/missing", "/"}, {home, home}} {
		s := startServerWith(t, []string{"HOME=" + server.home}, "unix://"+t.TempDir()+"/s", "ws://127.0.0.1:0")
		for _, url := range s.urls {
			lines := []string{"run pwd", "ls -d"}
			if server.home == home {
				lines = append(lines, "run --cwd ../h[1] pwd")
			}
			for _, line := range lines {
				c := command(t, strings.Fields(line)...)
				c.Env = append(c.Env, "EXECWIRE_SERVER="+url)
				if got := runCommand(t, c); got.out != server.want+"\n" {
					t.Errorf("HOME=%s, %s of %s: %+v", server.home, line, url, got)
				}
			}
		}
		here = "EXECWIRE_SERVER=" + s.urls[0]
	}
	run := func(line string) result {
		c := command(t, strings.Fields(line)...)
		c.Env = append(c.Env, here)
		return runCommand(t, c)
	}
	for _, test := range []struct{ line, want string }{
		{"cat f", "text"}, {"cat :f*", "text"}, {"cp :f* -", "text"}, {"cp :f :g", ""}, {"mv :g* h", ""}, {"chmod 600 h", ""},
		{"find -type f", "./f\n./h\n"}, {"find :h", "h\n"},
	} {
		if got := run(test.line); got != (result{out: test.want}) {
			t.Errorf("%s: %+v", test.line, got)
		}
	}
	if got := completion(t, []string{here}, "cp", ":"); got != ":f\n:h\n:6\n" {
		t.Errorf("paths are completed with %q", got)
	}
	if got := run("run --sandbox read-only pwd"); got.out != home+"\n" && !strings.Contains(got.errOut, "execwire doctor") { // no sandbox works
		t.Errorf("in a sandbox: %+v", got)
	}
	for _, line := range []string{"run pwd", "ls -d --server local:"} {
		c := command(t, strings.Fields(line)...)
		if c.Dir, err = filepath.EvalSymlinks(c.Dir); err != nil {
			t.Fatal(err)
		}
		if got := runCommand(t, c); got.out != c.Dir+"\n" {
			t.Errorf("%s: %+v, not in %s", line, got, c.Dir)
		}
	}
	for flag, want := range map[string]string{
		"--sandbox=workspace-write": "name it with --cwd",
	} {
		if got := runCommand(t, command(t, "run", "--server", "unix:///x", flag, "--cwd=src", "true")); got.code != codeUsage || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}
