package fsops_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// withoutLinks returns the calls that accept NoSymlinks. Each is called with a
// path of its kind: a directory if its name ends so, else a file.
func withoutLinks(t *testing.T) map[string]func(path string) error {
	ctx := t.Context()
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	t.Cleanup(uploads.Close)
	return map[string]func(path string) error{
		"read":           func(p string) error { _, _, err := fsops.ReadFile(ctx, p, 1<<20, fsops.NoSymlinks); return err },
		"write":          func(p string) error { return fsops.WriteFile(ctx, p, []byte("x"), fsops.NoSymlinks) },
		"look":           func(p string) error { _, err := fsops.Stat(p, fsops.NoSymlinks); return err },
		"look at itself": func(p string) error { _, _, err := fsops.Lstat(p, fsops.NoSymlinks); return err },
		"digest":         func(p string) error { _, _, err := fsops.Digest(ctx, p, true, fsops.NoSymlinks); return err },
		"remove":         func(p string) error { return fsops.Remove(ctx, p, fsops.Removal{NoSymlinks: true}) },
		"open": func(p string) error {
			_, err := newHandles(t, fsops.HandleLimits{}).Open("h", p, fsops.ReadMode, fsops.NoSymlinks)
			return err
		},
		"replace": func(p string) error {
			_, err := newHandles(t, fsops.HandleLimits{}).Open("h", p, fsops.ReplaceMode, fsops.NoSymlinks)
			return err
		},
		"upload": func(p string) error {
			upload, err := uploads.Begin(ctx, fsops.Replacement{Path: p, NoSymlinks: true})
			if err == nil {
				upload.Leave()
			}
			return err
		},
		"make directory":      func(p string) error { return fsops.CreateDirectory(p, true, nil, fsops.NoSymlinks) },
		"make with directory": func(p string) error { return fsops.CreateDirectory(p, true, new(uint32(0o700)), fsops.NoSymlinks) },
		"list directory": func(p string) error {
			return fsops.ReadDirectory(ctx, p, func([]fsops.Entry) error { return nil }, fsops.NoSymlinks)
		},
		"walk directory": func(p string) error { _, err := fsops.Walk(ctx, p, everything, &found{}, fsops.NoSymlinks); return err },
	}
}

func TestNoSymlinks(t *testing.T) {
	for name, call := range withoutLinks(t) {
		dir := build(t, "real/", "real/d/", "real/f = content", "ld -> real", "real/lf -> f", "real/ldd -> d", "real/none -> nowhere", "real/loop -> loop")
		file, final := "/f", "/real/lf"
		if isOfDirectories := len(name) > 9 && name[len(name)-9:] == "directory"; isOfDirectories {
			file, final = "/d", "/real/ldd"
		}
		for _, linked := range []string{"/ld" + file, final, "/real/none", "/real/loop", "/real/loop/x", "/ld/missing"} {
			wantError(t, name+" "+linked, call(dir+linked), fsops.SymlinkRefused, 0)
		}
		if err := call(dir + "/real" + file); err != nil {
			t.Errorf("%s without links: %v", name, err)
		}
		if content, err := os.ReadFile(dir + "/real/f"); file == "/d" && (err != nil || string(content) != "content") {
			t.Errorf("%s: the file has %q: %v", name, content, err)
		}
	}
}

func TestCreateDirectory_NoSymlinks(t *testing.T) {
	dir := build(t, "real/", "ld -> real", "f = ")
	for _, path := range []string{"/a/b/c", "/real/x", "/real/x"} {
		if err := fsops.CreateDirectory(dir+path, true, nil, fsops.NoSymlinks); err != nil {
			t.Error(err)
		}
	}
	if err := fsops.CreateDirectory(dir+"/m/n", true, new(uint32(0o2750)), fsops.NoSymlinks); err != nil {
		t.Error(err)
	}
	wantError(t, "below a link", fsops.CreateDirectory(dir+"/ld/a/b", true, nil, fsops.NoSymlinks), fsops.SymlinkRefused, 0)
	wantError(t, "again", fsops.CreateDirectory(dir+"/real", false, nil, fsops.NoSymlinks), fsops.AlreadyExists, unix.EEXIST)
	wantError(t, "over a file", fsops.CreateDirectory(dir+"/f", true, nil, fsops.NoSymlinks), fsops.AlreadyExists, unix.EEXIST)
	wantError(t, "in a file", fsops.CreateDirectory(dir+"/f/x", true, nil, fsops.NoSymlinks), fsops.NotADirectory, unix.ENOTDIR)
	wantError(t, "without a parent", fsops.CreateDirectory(dir+"/none/x", false, nil, fsops.NoSymlinks), fsops.NotFound, unix.ENOENT)
	wantError(t, "the root", fsops.CreateDirectory("/", false, nil, fsops.NoSymlinks), fsops.AlreadyExists, unix.EEXIST)
	wantTree(t, dir, "real/ mode=755", "real/x/ mode=755", "ld -> real", "f mode=644 = ", "a/ mode=755", "a/b/ mode=755", "a/b/c/ mode=755", "m/ mode=755", "m/n/ mode=750")
}

// With IgnoreMissing, a path through a link fails. It does not count as missing.
func TestRemove_NoSymlinks(t *testing.T) {
	dir := build(t, "real/", "real/f = ", "ld -> real")
	removal := fsops.Removal{NoSymlinks: true, IgnoreMissing: true, Recursive: true}
	for _, missing := range []string{"/none", "/none/x", "/real/none"} {
		if err := fsops.Remove(t.Context(), dir+missing, removal); err != nil {
			t.Errorf("%s: %v", missing, err)
		}
	}
	wantError(t, "a link", fsops.Remove(t.Context(), dir+"/ld", removal), fsops.SymlinkRefused, 0)
	if err := fsops.Remove(t.Context(), dir+"/real", removal); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "ld -> real")
}

// A directory is replaced by a link during the call.
func TestNoSymlinks_ConcurrentSwap_IsNotFollowed(t *testing.T) {
	dir := build(t, "real/", "real/f = public", "secret/", "secret/f = secret", "link -> secret")
	stop := swapping(t, dir+"/real", dir+"/link")
	defer stop()
	refused, read := 0, 0
	for i := 0; i < 3000 || refused == 0 || read == 0; i++ {
		data, _, err := fsops.ReadFile(t.Context(), dir+"/real/f", 1<<20, fsops.NoSymlinks)
		switch {
		case fsops.KindOf(err) == fsops.SymlinkRefused:
			refused++
		case err != nil:
			t.Fatal(err)
		case string(data) == "public":
			read++
		default:
			t.Fatalf("%q was read", data)
		}
	}
}

// An upload that began through a link cannot be resumed with NoSymlinks, also
// when the link no longer exists.
func TestUpload_BegunThroughLink_NoSymlinksFails(t *testing.T) {
	dir := build(t, "real/", "p -> real")
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	begun := fsops.Replacement{Path: dir + "/p/f", ID: "u"}
	u, err := uploads.Begin(t.Context(), begun)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), []byte("begun")); err != nil {
		t.Fatal(err)
	}
	u.Leave()
	if err := os.Remove(dir + "/p"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/p", 0o755); err != nil {
		t.Fatal(err)
	}
	begun.Offset, begun.NoSymlinks = 5, true
	_, err = uploads.Begin(t.Context(), begun)
	wantError(t, "going on", err, fsops.SymlinkRefused, 0)
	wantTree(t, dir, "real/ mode=755", "p/ mode=755")
}
