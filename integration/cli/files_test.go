package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type fileObject struct {
	Path, Type, Mode string
	RawPath          []byte `json:"raw_path"`
	Size             uint64
	LinkTarget       string `json:"link_target"`
	SHA256           string
}

func TestLs_Files(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.FileTree(t, map[string]string{"b": "12345", "a b": "", ".hidden": "", "sub/x": "", "new\nline": "", "\xff": ""})
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, d := range harness.NetworkTransports {
		server.ExpectCommand(t, d, harness.Result{Stdout: "a b\nb\nlink\nnew\nline\nsub\n\xff\n"}, "ls", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: ".hidden\na b\nb\nlink\nnew\nline\nsub\n\xff\n"}, "ls", "-a", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: dir + "\n"}, "ls", "-d", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: dir + "/b\n\n" + dir + "/sub:\nx\n"}, "ls", dir+"/sub", dir+"/b")
		got := harness.Run(t, nil, server.Remotely(d, "ls", "-l", dir)...)
		lines := strings.Split(got.Stdout, "\n")
		if got.Code != 0 || len(lines) != 8 || !strings.HasPrefix(lines[1], "-rw-r--r-- 1 ") || !strings.Contains(lines[1], " 5 ") ||
			!strings.HasPrefix(lines[2], "lrwxrwxrwx") || !strings.HasSuffix(lines[2], " link -> nowhere") {
			t.Errorf("ls -l through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "ls", "--json", dir)...)
		list := objects[fileObject](t, got.Stdout)
		if len(list) != 6 || list[1].Path != dir+"/b" || list[1].Size != 5 || list[1].Type != "regular" || list[1].Mode != "0644" ||
			list[2].LinkTarget != "nowhere" || string(list[5].RawPath) != dir+"/\xff" {
			t.Errorf("ls --json through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "ls", dir+"/missing", dir+"/sub")...)
		if got.Code != 1 || got.Stdout != dir+"/sub:\nx\n" || !strings.Contains(got.Stderr, dir+"/missing: no such file") {
			t.Errorf("ls of one that is missing through %s: %+v", d, got)
		}
	}
}

func TestLs_Trees(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		dir := harness.FileTree(t, map[string]string{"b": "", "a/d/e": "12345", "a/c": "", "a/none/": "", "f/.hidden/g": ""})
		if err := os.Symlink("..", dir+"/a/up"); err != nil {
			t.Fatal(err)
		}
		const visible = "D:\na\nb\nf\n\nD/a:\nc\nd\nnone\nup\n\nD/a/d:\ne\n\nD/a/none:\n\nD/f:\n"
		here := strings.NewReplacer("D", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: here.Replace(visible)}, "ls", "-R", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: here.Replace(visible + ".hidden\n\nD/f/.hidden:\ng\n")}, "ls", "-Ra", dir)
		server.ExpectCommand(t, d, harness.Result{Stdout: here.Replace("D/b\n\nD/a/d:\ne\n\nD/f:\n")}, "ls", "-R", dir+"/f", dir+"/b", dir+"/a/d")
		server.ExpectCommand(t, d, harness.Result{Stdout: dir + "\n"}, "ls", "-Rd", dir)
		got := harness.Run(t, nil, server.Remotely(d, "ls", "-lR", dir+"/a")...)
		if lines := strings.Split(got.Stdout, "\n"); got.Code != 0 || len(lines) != 11 || !strings.HasPrefix(lines[2], "drwxr-xr-x ") ||
			!strings.HasSuffix(lines[4], " up -> ..") || lines[6] != dir+"/a/d:" || !strings.Contains(lines[7], " 5 ") {
			t.Errorf("ls -lR through %s: %+v", d, got)
		}
		var paths []string
		for _, file := range objects[fileObject](t, harness.Run(t, nil, server.Remotely(d, "ls", "-R", "--json", dir)...).Stdout) {
			paths = append(paths, strings.TrimPrefix(file.Path, dir))
		}
		if want := "/a /b /f /a/c /a/d /a/none /a/up /a/d/e"; strings.Join(paths, " ") != want {
			t.Errorf("ls -R --json through %s: %q, want %q", d, paths, want)
		}
	}
}

// A directory that cannot be listed is reported, and the following ones are listed.
func TestLs_UnreadableDirectory_ListsTheRest(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.FileTree(t, map[string]string{"z/last": ""})
	deep, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 255)
	for range 20 { // beyond what a path can say
		if err := deep.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := deep.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = deep.Close()
		deep = next
	}
	_ = deep.Close()
	for _, d := range harness.NetworkTransports {
		got := harness.Run(t, nil, server.Remotely(d, "ls", "-R", dir)...)
		if got.Code != 1 || !strings.HasSuffix(got.Stdout, "\n\n"+dir+"/z:\nlast\n") || strings.Count(got.Stderr, "failed to walk "+dir) != 1 {
			t.Errorf("ls -R through %s: exit code %d, %q, %q", d, got.Code, got.Stdout[max(0, len(got.Stdout)-200):], got.Stderr)
		}
	}
}

func TestCatAndStat(t *testing.T) {
	server := harness.Serve(t)
	content := string(harness.RandomBytes(3 << 20))
	dir := harness.FileTree(t, map[string]string{"big": content, "small": "hello\n", "\xff\x1b": "raw\n"})
	for _, d := range harness.NetworkTransports {
		server.ExpectCommand(t, d, harness.Result{Stdout: content + "hello\nraw\n"}, "cat", dir+"/big", dir+"/small", dir+"/\xff\x1b")
		server.ExpectCommand(t, d, harness.Result{Stdout: content[1<<20:][:1000]}, "cat", "--offset", "1048576", "--length", "1000", dir+"/big")
		got := harness.Run(t, nil, server.Remotely(d, "cat", dir, dir+"/no\x1bpe", dir+"/small")...)
		if got.Code != 1 || got.Stdout != "hello\n" || !strings.Contains(got.Stderr, "execwire ls") || !strings.Contains(got.Stderr, `no\x1bpe: no such file`) {
			t.Errorf("cat of what cannot be read through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "stat", "--json", dir, dir+"/small")...)
		list := objects[fileObject](t, got.Stdout)
		if got.Code != 0 || len(list) != 2 || list[0].Type != "directory" || list[1].Size != 6 {
			t.Errorf("stat --json through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "stat", dir+"/small")...)
		if got.Code != 0 || !strings.Contains(got.Stdout, "mode: 0644 -rw-r--r--\n") || !strings.Contains(got.Stdout, "size: 6\n") {
			t.Errorf("stat through %s: %+v", d, got)
		}
	}
}

// A write error of the output ends the command, and is not reported as an error of a file.
func TestCat_FullDisk_Fails(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.FileTree(t, map[string]string{"a": "1", "b": "2"})
	for _, name := range []string{"cat", "stat", "ls"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		printing := harness.NewCommand(server.Remotely(harness.UnixTransport, name, dir+"/a", dir+"/b")...)
		printing.Stdout = full
		printing.Launch(t)
		if code := printing.Await(t); code != 125 || strings.Count(printing.Errors.String(), "no space left") != 1 {
			t.Errorf("%s: exit code %d, %q", name, code, printing.Errors.String())
		}
		_ = full.Close()
	}
}

func TestDirectories_CreateAndRemove(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		dir := t.TempDir()
		got := harness.Run(t, nil, server.Remotely(d, "mkdir", dir+"/a/b")...)
		if got.Code != 1 || !strings.Contains(got.Stderr, "-p") {
			t.Errorf("mkdir without a parent through %s: %+v", d, got)
		}
		server.ExpectCommand(t, d, harness.Result{}, "mkdir", "-p", dir+"/a/b", dir+"/a/b")
		got = harness.Run(t, nil, server.Remotely(d, "rm", dir+"/a")...)
		if got.Code != 1 || !strings.Contains(got.Stderr, "it is a directory") || !strings.Contains(got.Stderr, "-r") {
			t.Errorf("rm of a directory through %s: %+v", d, got)
		}
		server.ExpectCommand(t, d, harness.Result{}, "rm", "-d", dir+"/a/b")
		if err := os.WriteFile(dir+"/a/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		server.ExpectCommand(t, d, harness.Result{}, "rm", "-rf", dir+"/a", dir+"/a")
		if got = harness.Run(t, nil, server.Remotely(d, "rm", "-r", dir+"/a")...); got.Code != 1 || !strings.Contains(got.Stderr, "no such file") {
			t.Errorf("rm of what is not there through %s: %+v", d, got)
		}
		if _, err := os.Stat(dir + "/a"); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// Paths that are rejected by name are rejected before anything is removed.
func TestRemove_DotPaths_AreRejected(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		dir := harness.FileTree(t, map[string]string{"a/b/c": "", "first": ""})
		for _, name := range []string{".", "..", "./", "../.", ":..", "b/.", "b/..", dir + "/a/b/..", dir + "/a/."} {
			removal := harness.NewCommand(server.Remotely(d, "rm", "-rf", dir+"/first", name)...)
			removal.Dir = dir + "/a/b"
			if got := removal.Complete(t, nil); got.Code != 2 || !strings.Contains(got.Stderr, "by its name") {
				t.Errorf("rm -rf %s through %s: %+v", name, d, got)
			}
		}
		for _, name := range []string{"/first", "/a/b/c"} {
			if _, err := os.Stat(dir + name); err != nil {
				t.Errorf("it was removed: %v", err)
			}
		}
	}
}
