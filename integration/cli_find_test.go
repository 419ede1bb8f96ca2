package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTreesAreSearched(t *testing.T) {
	server := serve(t)
	dir := fileTree(t, map[string]string{"a.go": "", "b/c.go": "1", "b/c.txt": "", "b/d/e.go": "", ".git/x.go": "", "new\nline": "", "\xff.go": ""})
	if err := os.Symlink("b", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, d := range wires {
		for _, tt := range []struct {
			args []string
			want string
		}{
			{nil, "DIR\nDIR/.git\nDIR/a.go\nDIR/b\nDIR/link\nDIR/new\nline\nDIR/\xff.go\nDIR/.git/x.go\nDIR/b/c.go\nDIR/b/c.txt\nDIR/b/d\nDIR/b/d/e.go\n"},
			{[]string{"-name", "*.go", "-ignore", ".git"}, "DIR/a.go\nDIR/\xff.go\nDIR/b/c.go\nDIR/b/d/e.go\n"},
			{[]string{"-type", "d", "-maxdepth", "1"}, "DIR\nDIR/.git\nDIR/b\n"},
			{[]string{"--maxdepth=0"}, "DIR\n"},
			{[]string{"-type", "l", "-print0"}, "DIR/link\x00"},
		} {
			want := strings.ReplaceAll(tt.want, "DIR", dir)
			server.expectCommand(t, d, result{stdout: want}, "find", append([]string{dir}, tt.args...)...)
		}
		got := run(t, nil, server.remotely(d, "find", dir+"/b", "-json")...)
		list := objects[fileObject](t, got.stdout)
		if len(list) != 5 || list[0].Path != dir+"/b" || list[1].Path != dir+"/b/c.go" || list[1].Size != 1 || list[1].Type != "regular" {
			t.Errorf("find -json through %s: %+v", d, got)
		}
		got = run(t, nil, server.remotely(d, "find", dir+"/missing")...)
		if got.code != 1 || !strings.Contains(got.stderr, "no such file") {
			t.Errorf("find of nothing through %s: %+v", d, got)
		}
	}
}

func TestDirectoriesAreWatched(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		dir := fileTree(t, map[string]string{"sub/file": "", "there": "", ".git/": ""})
		var said lockedBuffer
		watch := newCommand(server.remotely(d, "watch", "-r", "--settle", "0", "--ignore", ".git", "--json", "-n", "3", dir)...)
		watch.Stdout = &said
		watch.launch(t)
		eventually(t, "the watch begins", func() bool { return said.String() == `{"event":"started"}`+"\n" })
		steps := []struct {
			do   func() error
			want string
		}{
			{func() error { return os.Mkdir(filepath.Join(dir, "\xff"), 0o755) }, `{"event":"created","path":"�","raw_path":"/w==","type":"directory"}`},
			{func() error { return os.Remove(filepath.Join(dir, "there")) }, `{"event":"removed","path":"there"}`},
			{func() error { return os.Chmod(filepath.Join(dir, "sub", "file"), 0o600) }, `{"event":"metadata","path":"sub/file","type":"regular"}`},
		}
		if err := os.WriteFile(filepath.Join(dir, ".git", "ignored"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			eventually(t, step.want, func() bool { return strings.Contains(said.String(), step.want+"\n") })
		}
		if code := watch.await(t); code != 0 || strings.Count(said.String(), "\n") != 4 {
			t.Errorf("it ended with %d through %s and said %q", code, d, said.String())
		}
	}
}

// A watch ends with a signal, and with its directory, and says so.
func TestWatchesEnd(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		for _, end := range []struct {
			do   func(*command, string)
			code int
			says string
		}{
			{func(c *command, _ string) { c.send(t, unix.SIGINT) }, 130, "interrupted"},
			{func(_ *command, dir string) { _ = os.RemoveAll(dir) }, 125, ""},
		} {
			dir := t.TempDir()
			var said lockedBuffer
			watch := newCommand(server.remotely(d, "watch", "--json", dir)...)
			watch.Stdout = &said
			watch.launch(t)
			eventually(t, "the watch begins", func() bool { return said.String() != "" })
			end.do(watch, dir)
			if code := watch.await(t); code != end.code || !strings.Contains(watch.errors.String(), end.says) {
				t.Errorf("it ended with %d through %s and said %q", code, d, watch.errors.String())
			}
		}
		got := run(t, nil, server.remotely(d, "watch", "/no/such/directory")...)
		if got.code != 125 || !strings.Contains(got.stderr, "no such file") {
			t.Errorf("watch of nothing through %s: %+v", d, got)
		}
	}
}
