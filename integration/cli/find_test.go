package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

func TestFind_Trees(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.FileTree(t, map[string]string{"a.go": "", "b/c.go": "1", "b/c.txt": "", "b/d/e.go": "", ".git/x.go": "", "new\nline": "", "\xff.go": ""})
	if err := os.Symlink("b", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, d := range harness.NetworkTransports {
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
			server.ExpectCommand(t, d, harness.Result{Stdout: want}, "find", append([]string{dir}, tt.args...)...)
		}
		got := harness.Run(t, nil, server.Remotely(d, "find", dir+"/b", "-json")...)
		list := objects[fileObject](t, got.Stdout)
		if len(list) != 5 || list[0].Path != dir+"/b" || list[1].Path != dir+"/b/c.go" || list[1].Size != 1 || list[1].Type != "regular" {
			t.Errorf("find -json through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "find", dir+"/missing")...)
		if got.Code != 1 || !strings.Contains(got.Stderr, "no such file") {
			t.Errorf("find of nothing through %s: %+v", d, got)
		}
	}
}

func TestWatchCommand_Directory(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		dir := harness.FileTree(t, map[string]string{"sub/file": "", "there": "", ".git/": ""})
		var said harness.LockedBuffer
		watch := harness.NewCommand(server.Remotely(d, "watch", "-r", "--settle", "0", "--ignore", ".git", "--json", "-n", "3", dir)...)
		watch.Stdout = &said
		watch.Launch(t)
		harness.Eventually(t, "the watch begins", func() bool { return said.String() == `{"event":"started"}`+"\n" })
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
			harness.Eventually(t, step.want, func() bool { return strings.Contains(said.String(), step.want+"\n") })
		}
		if code := watch.Await(t); code != 0 || strings.Count(said.String(), "\n") != 4 {
			t.Errorf("it ended with %d through %s and wrote %q", code, d, said.String())
		}
	}
}

// A watch ends on a signal or with its directory, and reports that.
func TestWatchCommand_End(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for _, end := range []struct {
			do   func(*harness.Command, string)
			code int
			says string
		}{
			{func(c *harness.Command, _ string) { c.Send(t, unix.SIGINT) }, 130, "interrupted"},
			{func(_ *harness.Command, dir string) { _ = os.RemoveAll(dir) }, 125, ""},
		} {
			dir := t.TempDir()
			var said harness.LockedBuffer
			watch := harness.NewCommand(server.Remotely(d, "watch", "--json", dir)...)
			watch.Stdout = &said
			watch.Launch(t)
			harness.Eventually(t, "the watch begins", func() bool { return said.String() != "" })
			end.do(watch, dir)
			if code := watch.Await(t); code != end.code || !strings.Contains(watch.Errors.String(), end.says) {
				t.Errorf("it ended with %d through %s and wrote %q", code, d, watch.Errors.String())
			}
		}
		got := harness.Run(t, nil, server.Remotely(d, "watch", "/no/such/directory")...)
		if got.Code != 125 || !strings.Contains(got.Stderr, "no such file") {
			t.Errorf("watch of nothing through %s: %+v", d, got)
		}
	}
}
