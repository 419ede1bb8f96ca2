package cli

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// inventory describes a tree: content and permission bits of files and the targets of links;
// if exact, also the times of files and the permission bits of directories.
func inventory(t testing.TB, dir string, exact bool) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		line := fmt.Sprintf("%q %v", name, info.Mode())
		if info.IsDir() && !exact {
			line = fmt.Sprintf("%q", name)
		}
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(content))
			if exact {
				line += info.ModTime().String()
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" to %q", target)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// expectSameTree checks that two trees are equal.
func expectSameTree(t testing.TB, what, got, want string, exact bool) {
	t.Helper()
	gotList, wantList := inventory(t, got, exact), inventory(t, want, exact)
	if !slices.Equal(gotList, wantList) {
		t.Errorf("%s: %d names differ from %d:\n%s\nwant\n%s", what, len(gotList), len(wantList),
			strings.Join(gotList, "\n"), strings.Join(wantList, "\n"))
	}
}

// oddTree creates a tree with everything that is difficult to copy.
func oddTree(t testing.TB) string {
	t.Helper()
	dir := harness.FileTree(t, map[string]string{
		"empty": "", "script": "#!/bin/sh\n", "a/b/c/deep": "deep", "none/": "", "new\nline": "x", "\xff\x1b[2J": "raw", "-rf": "dash",
		"big": string(harness.RandomBytes(700_000)), ":colon": "colon",
	})
	for name, mode := range map[string]os.FileMode{"script": 0o755, "empty": 0o400, "a/b": 0o700, "none": 0o750} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "script", "dangling": "/no/such\xfe", "a/up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "script"), time.Time{}, time.Unix(1e9, 123456789)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCopy_Trees(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		src, dir := oddTree(t), t.TempDir()
		there, back, again := dir+"/there", dir+"/back", dir+"/again"
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-rp", src, ":"+there)
		expectSameTree(t, "uploaded", there, src, true)
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-rp", ":"+there, back)
		expectSameTree(t, "downloaded", back, src, true)
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", ":"+there, ":"+again)
		expectSameTree(t, "copied there", again, src, false)
		// Into a directory that is there, under its own name; into it with what is in it.
		into := dir + "/into"
		server.ExpectCommand(t, d, harness.Result{}, "mkdir", into)
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", src, ":"+into)
		expectSameTree(t, "into", filepath.Join(into, filepath.Base(src)), src, false)
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-rT", src+"/a", ":"+into)
		server.ExpectCommand(t, d, harness.Result{}, "cp", "-r", ":"+src+"/.", into)
		if content, err := os.ReadFile(into + "/a/b/c/deep"); string(content) != "deep" {
			t.Errorf("merged through %s: %v", d, err)
		}
	}
}

// In both directions a copy becomes equal to its source, repeatedly, and equal files are not
// copied again.
func TestCopy_Trees_Synchronize(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		for _, how := range []string{"--update", "--checksum"} {
			for _, upload := range []bool{true, false} {
				src, dest := oddTree(t), filepath.Join(t.TempDir(), "dest")
				from, to := src+"/.", ":"+dest
				if !upload {
					from, to = ":"+src+"/.", dest
				}
				same := func(what string) {
					t.Helper()
					server.ExpectCommand(t, d, harness.Result{}, "cp", "-rp", how, "--delete", from, to)
					expectSameTree(t, fmt.Sprint(what, d, how, upload), dest, src, true)
				}
				same("at first")
				inode := inodeOf(t, dest+"/big")
				change := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				change(os.WriteFile(src+"/script", []byte("changed"), 0o755))
				change(os.Remove(src + "/link"))
				change(os.Mkdir(src+"/link", 0o755))
				change(os.WriteFile(src+"/link/new", nil, 0o600))
				change(os.RemoveAll(src + "/a"))
				change(os.WriteFile(src+"/a", []byte("now a file"), 0o644))
				change(os.WriteFile(dest+"/extra", nil, 0o644))
				change(os.MkdirAll(dest+"/none/extra/extra", 0o755))
				same("changed")
				same("unchanged")
				if inodeOf(t, dest+"/big") != inode {
					t.Errorf("what was the same was copied again through %s with %s", d, how)
				}
			}
		}
	}
}

// Ignored entries are neither copied nor removed, in both directions.
func TestCopy_Ignore(t *testing.T) {
	server := harness.Serve(t)
	for _, ends := range [][2]string{{"", ":"}, {":", ""}} {
		src := harness.FileTree(t, map[string]string{"a.go": "", "b.o": "", "sub/c.o": "", "sub/d.go": "", "node_modules/e.go": ""})
		dest := harness.FileTree(t, map[string]string{"kept.o": "", "old.go": ""})
		server.ExpectCommand(t, harness.TCPTransport, harness.Result{},
			"cp", "-r", "--delete", "--ignore", "*.o", "--ignore", "node_modules/", ends[0]+src+"/.", ends[1]+dest)
		var got []string
		if err := fs.WalkDir(os.DirFS(dest), ".", func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				got = append(got, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a.go", "kept.o", "sub/d.go"}; !slices.Equal(got, want) {
			t.Errorf("from %q to %q: %q are there, want %q", ends[0], ends[1], got, want)
		}
	}
}

// The behavior of cp with single files, and its refusals.
func TestCopy_Destinations(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		src := harness.FileTree(t, map[string]string{"one": "1", "two": "2"})
		dir := harness.FileTree(t, map[string]string{"sub/": "", "kept": "old", "target": "old"})
		if err := os.Symlink("target", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
			t.Fatal(err)
		}
		for _, remote := range []bool{true, false} {
			here, there := "", ":"
			if !remote {
				here, there = ":", ""
			}
			server.ExpectCommand(t, d, harness.Result{}, "cp", here+src+"/one", here+src+"/two", there+dir+"/sub")
			server.ExpectCommand(t, d, harness.Result{}, "cp", here+src+"/one", there+dir+"/sub/../link")
			server.ExpectCommand(t, d, harness.Result{}, "cp", "-n", here+src+"/two", there+dir+"/kept")
			for path, want := range map[string]string{"sub/one": "1", "sub/two": "2", "target": "1", "kept": "old"} {
				if got, err := os.ReadFile(filepath.Join(dir, path)); string(got) != want {
					t.Errorf("%s is %q, %v through %s", path, got, err, d)
				}
			}
			if info, err := os.Lstat(dir + "/link"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("the link is %v, %v", info.Mode(), err)
			}
			for _, tt := range []struct {
				args []string
				says string
			}{
				{[]string{here + src, there + dir + "/new"}, "-r"},
				{[]string{here + src + "/missing", here + src + "/one", there + dir + "/sub"}, "no such file"},
				{[]string{here + src + "/one", there + dir + "/fifo"}, "FIFO"},
				{[]string{"-T", here + src + "/one", there + dir + "/sub"}, "is a directory"},
			} {
				got := harness.Run(t, nil, server.Remotely(d, "cp", tt.args...)...)
				if got.Code != 1 || !strings.Contains(got.Stderr, tt.says) {
					t.Errorf("cp %q through %s: %+v, want %q", tt.args, d, got, tt.says)
				}
			}
			for _, dest := range []string{"/none/", "/kept/"} {
				got := harness.Run(t, nil, server.Remotely(d, "cp", here+src+"/one", there+dir+dest)...)
				if got.Code == 0 || !strings.Contains(got.Stderr, "directory") {
					t.Errorf("cp to %s through %s: %+v", dest, d, got)
				}
			}
		}
		if names, err := filepath.Glob(dir + "/.*"); len(names) > 0 || err != nil {
			t.Errorf("left behind: %q, %v", names, err)
		}
	}
}

// A tree survives a copy in both directions unchanged while the connection is cut repeatedly.
func TestCopy_Trees_WithCuts(t *testing.T) {
	harness.Waits(t)
	harness.WithConnectionCuts(t, 1<<20, func(t *testing.T, ctx context.Context, c *client.Client, _ *harness.Command, cut func()) {
		cut()
		src, dir := oddTree(t), t.TempDir()
		for i := range byte(8) {
			if err := os.WriteFile(filepath.Join(src, "a", "big"+string('0'+i)), harness.RandomBytes(harness.CutBytes()/8), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		options := client.TransferOptions{Recursive: true, Update: true, Preserve: true, OnFailed: func(path string, err error) { t.Errorf("%s: %v", path, err) }}
		if _, err := c.Push(ctx, src, dir+"/there", options); err != nil {
			t.Fatal(err)
		}
		expectSameTree(t, "pushed", dir+"/there", src, true)
		if _, err := c.Pull(ctx, dir+"/there", dir+"/back", options); err != nil {
			t.Fatal(err)
		}
		expectSameTree(t, "pulled", dir+"/back", src, true)
	})
}

// The progress of a copy is shown only at a terminal, and not if it is disabled.
func TestCopy_Terminal_ShowsProgress(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		src := harness.FileTree(t, map[string]string{"big": string(harness.RandomBytes(3 << 20)), "tree/a": "1", "tree/b": "2"})
		dest := t.TempDir()
		for _, tt := range []struct {
			args  []string
			shows []string
		}{
			{[]string{src + "/big", ":" + dest + "/up"}, []string{"big  [", "%", "iB/s", "\x1b[K", "copied 1 file, 3.0 MiB in "}},
			{[]string{":" + src + "/big", dest + "/down"}, []string{"big  [", "copied 1 file, 3.0 MiB in "}},
			{[]string{"-r", src + "/tree", ":" + dest + "/tree"}, []string{"files  ", "copied 2 files, 2 B in "}},
			{[]string{"-q", src + "/big", ":" + dest + "/quiet"}, nil},
		} {
			got := atTerminal(server, t, d, "cp", tt.args...)
			if got.Code != 0 || len(tt.shows) == 0 && got.Stdout != "" {
				t.Errorf("cp %q through %s: %+v", tt.args, d, got)
			}
			for _, want := range tt.shows {
				if !strings.Contains(got.Stdout, want) {
					t.Errorf("cp %q through %s shows %q, not %q", tt.args, d, got.Stdout, want)
				}
			}
		}
		server.ExpectCommand(t, d, harness.Result{}, "cp", src+"/big", ":"+dest+"/piped")
	}
}

// A file is copied again if its copy was changed.
func TestCopy_Repeated_Replaces(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		content := string(harness.RandomBytes(1 << 20))
		src, dest := harness.FileTree(t, map[string]string{"f": content}), t.TempDir()
		for _, change := range []func() error{
			func() error { return nil },
			func() error { return os.Remove(dest + "/f") },
			func() error { return os.WriteFile(dest+"/f", []byte("changed"), 0o600) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			server.ExpectCommand(t, d, harness.Result{}, "cp", src+"/f", ":"+dest)
			if got, err := os.ReadFile(dest + "/f"); string(got) != content {
				t.Errorf("%d bytes through %s, %v", len(got), d, err)
			}
		}
	}
}
