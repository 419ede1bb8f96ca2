package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fileTree makes files, and directories of names with a slash at the end.
func fileTree(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type fileObject struct {
	Path, Type, Mode string
	RawPath          []byte `json:"raw_path"`
	Size             uint64
	LinkTarget       string `json:"link_target"`
	SHA256           string
}

func TestFilesAreListed(t *testing.T) {
	server := serve(t)
	dir := fileTree(t, map[string]string{"b": "12345", "a b": "", ".hidden": "", "sub/x": "", "new\nline": "", "\xff": ""})
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, d := range wires {
		server.expectCommand(t, d, result{stdout: "a b\nb\nlink\nnew\nline\nsub\n\xff\n"}, "ls", dir)
		server.expectCommand(t, d, result{stdout: ".hidden\na b\nb\nlink\nnew\nline\nsub\n\xff\n"}, "ls", "-a", dir)
		server.expectCommand(t, d, result{stdout: dir + "\n"}, "ls", "-d", dir)
		server.expectCommand(t, d, result{stdout: dir + "/b\n\n" + dir + "/sub:\nx\n"}, "ls", dir+"/sub", dir+"/b")
		got := run(t, nil, server.remotely(d, "ls", "-l", dir)...)
		lines := strings.Split(got.stdout, "\n")
		if got.code != 0 || len(lines) != 8 || !strings.HasPrefix(lines[1], "-rw-r--r-- 1 ") || !strings.Contains(lines[1], " 5 ") ||
			!strings.HasPrefix(lines[2], "lrwxrwxrwx") || !strings.HasSuffix(lines[2], " link -> nowhere") {
			t.Errorf("ls -l through %s: %+v", d, got)
		}
		got = run(t, nil, server.remotely(d, "ls", "--json", dir)...)
		list := objects[fileObject](t, got.stdout)
		if len(list) != 6 || list[1].Path != dir+"/b" || list[1].Size != 5 || list[1].Type != "regular" || list[1].Mode != "0644" ||
			list[2].LinkTarget != "nowhere" || string(list[5].RawPath) != dir+"/\xff" {
			t.Errorf("ls --json through %s: %+v", d, got)
		}
		got = run(t, nil, server.remotely(d, "ls", dir+"/missing", dir+"/sub")...)
		if got.code != 1 || got.stdout != dir+"/sub:\nx\n" || !strings.Contains(got.stderr, dir+"/missing: no such file") {
			t.Errorf("ls of one that is missing through %s: %+v", d, got)
		}
	}
}

func TestTreesAreListed(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		dir := fileTree(t, map[string]string{"b": "", "a/d/e": "12345", "a/c": "", "a/none/": "", "f/.hidden/g": ""})
		if err := os.Symlink("..", dir+"/a/up"); err != nil {
			t.Fatal(err)
		}
		const visible = "D:\na\nb\nf\n\nD/a:\nc\nd\nnone\nup\n\nD/a/d:\ne\n\nD/a/none:\n\nD/f:\n"
		here := strings.NewReplacer("D", dir)
		server.expectCommand(t, d, result{stdout: here.Replace(visible)}, "ls", "-R", dir)
		server.expectCommand(t, d, result{stdout: here.Replace(visible + ".hidden\n\nD/f/.hidden:\ng\n")}, "ls", "-Ra", dir)
		server.expectCommand(t, d, result{stdout: here.Replace("D/b\n\nD/a/d:\ne\n\nD/f:\n")}, "ls", "-R", dir+"/f", dir+"/b", dir+"/a/d")
		server.expectCommand(t, d, result{stdout: dir + "\n"}, "ls", "-Rd", dir)
		got := run(t, nil, server.remotely(d, "ls", "-lR", dir+"/a")...)
		if lines := strings.Split(got.stdout, "\n"); got.code != 0 || len(lines) != 11 || !strings.HasPrefix(lines[2], "drwxr-xr-x ") ||
			!strings.HasSuffix(lines[4], " up -> ..") || lines[6] != dir+"/a/d:" || !strings.Contains(lines[7], " 5 ") {
			t.Errorf("ls -lR through %s: %+v", d, got)
		}
		var paths []string
		for _, file := range objects[fileObject](t, run(t, nil, server.remotely(d, "ls", "-R", "--json", dir)...).stdout) {
			paths = append(paths, strings.TrimPrefix(file.Path, dir))
		}
		if want := "/a /b /f /a/c /a/d /a/none /a/up /a/d/e"; strings.Join(paths, " ") != want {
			t.Errorf("ls -R --json through %s: %q, want %q", d, paths, want)
		}
	}
}

// Servers of the exec-server protocol list a link as what it leads to.
func TestTreesOfReferencesAreListedWithoutFollowingLinks(t *testing.T) {
	for _, c := range []contract{olderContract(), newerContract()} {
		site := openReference(t, c)
		dir := fileTree(t, map[string]string{"a/b": "", "c/": ""})
		for link, target := range map[string]string{"a/loop": ".", "a/up": ".."} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.NewReplacer("D", dir).Replace("D:\na\nc\n\nD/a:\nb\nloop\nup\n\nD/c:\n")
		if got := run(t, nil, "ls", "--server", site.url, "-R", dir); got != (result{stdout: want}) {
			t.Errorf("from %s: %+v, want %q", c.name, got, want)
		}
	}
}

// A directory that cannot be listed is told, and those after it are listed.
func TestTreesAreListedAsFarAsTheyCanBe(t *testing.T) {
	server := serve(t)
	dir := fileTree(t, map[string]string{"z/last": ""})
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
	for _, d := range wires {
		got := run(t, nil, server.remotely(d, "ls", "-R", dir)...)
		if got.code != 1 || !strings.HasSuffix(got.stdout, "\n\n"+dir+"/z:\nlast\n") || strings.Count(got.stderr, "failed to walk "+dir) != 1 {
			t.Errorf("ls -R through %s: exit code %d, %q, %q", d, got.code, got.stdout[max(0, len(got.stdout)-200):], got.stderr)
		}
	}
}

func TestFilesArePrintedAndDescribed(t *testing.T) {
	server := serve(t)
	content := string(randomBytes(3 << 20))
	dir := fileTree(t, map[string]string{"big": content, "small": "hello\n", "\xff\x1b": "raw\n"})
	for _, d := range wires {
		server.expectCommand(t, d, result{stdout: content + "hello\nraw\n"}, "cat", dir+"/big", dir+"/small", dir+"/\xff\x1b")
		server.expectCommand(t, d, result{stdout: content[1<<20:][:1000]}, "cat", "--offset", "1048576", "--length", "1000", dir+"/big")
		got := run(t, nil, server.remotely(d, "cat", dir, dir+"/no\x1bpe", dir+"/small")...)
		if got.code != 1 || got.stdout != "hello\n" || !strings.Contains(got.stderr, "execwire ls") || !strings.Contains(got.stderr, `no\x1bpe: no such file`) {
			t.Errorf("cat of what cannot be read through %s: %+v", d, got)
		}
		got = run(t, nil, server.remotely(d, "stat", "--json", dir, dir+"/small")...)
		list := objects[fileObject](t, got.stdout)
		if got.code != 0 || len(list) != 2 || list[0].Type != "directory" || list[1].Size != 6 {
			t.Errorf("stat --json through %s: %+v", d, got)
		}
		got = run(t, nil, server.remotely(d, "stat", dir+"/small")...)
		if got.code != 0 || !strings.Contains(got.stdout, "mode: 0644 -rw-r--r--\n") || !strings.Contains(got.stdout, "size: 6\n") {
			t.Errorf("stat through %s: %+v", d, got)
		}
	}
}

// Output that nobody takes is the end, and not the fault of a file.
func TestNothingIsPrintedToAFullDisk(t *testing.T) {
	server := serve(t)
	dir := fileTree(t, map[string]string{"a": "1", "b": "2"})
	for _, name := range []string{"cat", "stat", "ls"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		printing := newCommand(server.remotely(unixDoor, name, dir+"/a", dir+"/b")...)
		printing.Stdout = full
		printing.launch(t)
		if code := printing.await(t); code != 125 || strings.Count(printing.errors.String(), "no space left") != 1 {
			t.Errorf("%s: exit code %d, %q", name, code, printing.errors.String())
		}
		_ = full.Close()
	}
}

func TestDirectoriesAreMadeAndRemoved(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		dir := t.TempDir()
		got := run(t, nil, server.remotely(d, "mkdir", dir+"/a/b")...)
		if got.code != 1 || !strings.Contains(got.stderr, "-p") {
			t.Errorf("mkdir without a parent through %s: %+v", d, got)
		}
		server.expectCommand(t, d, result{}, "mkdir", "-p", dir+"/a/b", dir+"/a/b")
		got = run(t, nil, server.remotely(d, "rm", dir+"/a")...)
		if got.code != 1 || !strings.Contains(got.stderr, "it is a directory") || !strings.Contains(got.stderr, "-r") {
			t.Errorf("rm of a directory through %s: %+v", d, got)
		}
		server.expectCommand(t, d, result{}, "rm", "-d", dir+"/a/b")
		if err := os.WriteFile(dir+"/a/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		server.expectCommand(t, d, result{}, "rm", "-rf", dir+"/a", dir+"/a")
		if got = run(t, nil, server.remotely(d, "rm", "-r", dir+"/a")...); got.code != 1 || !strings.Contains(got.stderr, "no such file") {
			t.Errorf("rm of what is not there through %s: %+v", d, got)
		}
		if _, err := os.Stat(dir + "/a"); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// What is refused by its name is refused before anything is removed.
func TestDirectoriesAreNotRemovedByDots(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		dir := fileTree(t, map[string]string{"a/b/c": "", "first": ""})
		for _, name := range []string{".", "..", "./", "../.", ":..", "b/.", "b/..", dir + "/a/b/..", dir + "/a/."} {
			removal := newCommand(server.remotely(d, "rm", "-rf", dir+"/first", name)...)
			removal.Dir = dir + "/a/b"
			if got := removal.complete(t, nil); got.code != 2 || !strings.Contains(got.stderr, "by its name") {
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
