package fsops_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

func TestRemove(t *testing.T) {
	tests := []struct {
		path  string
		how   fsops.Removal
		kind  fsops.Kind
		errno syscall.Errno
		gone  []string
	}{
		{path: "f", gone: []string{"f"}},
		{path: "readonly", gone: []string{"readonly"}},
		{path: "e", gone: []string{"e"}},
		{path: "fifo", gone: []string{"fifo"}},
		{path: "ld", gone: []string{"ld"}},
		{path: "ld/", how: fsops.Removal{Recursive: true}, gone: []string{"ld"}},
		{path: "dangling", how: fsops.Removal{Recursive: true}, gone: []string{"dangling"}},
		{path: "d", kind: fsops.DirectoryNotEmpty, errno: unix.ENOTEMPTY},
		{path: "d", how: fsops.Removal{IgnoreMissing: true}, kind: fsops.DirectoryNotEmpty, errno: unix.ENOTEMPTY},
		{path: "d", how: fsops.Removal{Recursive: true}, gone: []string{"d", "d/sub", "d/sub/x", "d/out"}},
		{path: "none", kind: fsops.NotFound, errno: unix.ENOENT},
		{path: "none/x", how: fsops.Removal{Recursive: true}, kind: fsops.NotFound, errno: unix.ENOENT},
		{path: "none", how: fsops.Removal{IgnoreMissing: true}},
		{path: "none/x", how: fsops.Removal{IgnoreMissing: true, Recursive: true}},
		{path: "f/x", how: fsops.Removal{IgnoreMissing: true, Recursive: true}, kind: fsops.NotADirectory, errno: unix.ENOTDIR},
	}
	all := []string{"f = ", "readonly mode=444 = ", "e/", "fifo |", "d/", "d/sub/", "d/sub/x = ", "d/out -> ../kept", "ld -> d", "dangling -> nowhere", "kept/", "kept/x = "}
	for _, tt := range tests {
		dir := build(t, all...)
		wantError(t, tt.path, fsops.Remove(t.Context(), dir+"/"+tt.path, tt.how), tt.kind, tt.errno)
		left := tree(t, dir)
		if len(left) != len(all)-len(tt.gone) {
			t.Errorf("%s, %+v: %q are left", tt.path, tt.how, left)
		}
		for _, name := range tt.gone {
			if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s, %+v: %s still exists (%v)", tt.path, tt.how, name, err)
			}
		}
	}
}

func TestRemove_Root_Fails(t *testing.T) {
	for _, path := range []string{"/", "//", "/..", "/x/.."} {
		err := fsops.Remove(t.Context(), path, fsops.Removal{}) // not recursive, in case the root can be removed
		wantError(t, path, err, fsops.Failed, unix.EBUSY)
	}
}

func TestRemove_WideTree(t *testing.T) {
	dir := build(t, "top/")
	for i := range 300 {
		for _, line := range []string{fmt.Sprintf("top/d%d/", i), fmt.Sprintf("top/d%d/f = ", i), fmt.Sprintf("top/f%d = ", i)} {
			if err := buildOne(dir, line); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := fsops.Remove(t.Context(), dir+"/top", fsops.Removal{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir)
}

// The tree is deeper than a path can be long, and than there are descriptors.
func TestRemove_DeepTree(t *testing.T) {
	dir := build(t, "top/", "top/f = ")
	nest(t, dir+"/top", 2500)
	if err := fsops.Remove(t.Context(), dir+"/top", fsops.Removal{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir)
}

// nest makes nested directories of a depth.
func nest(t *testing.T, top string, depth int) {
	t.Helper()
	nestNamed(t, top, "d", depth)
}

// nestNamed is nest with a name for the directories.
func nestNamed(t *testing.T, top, name string, depth int) {
	t.Helper()
	at, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		var below int
		if err == nil {
			err = unix.Mkdirat(at, name, 0o755)
		}
		if err == nil {
			below, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = below
	}
	_ = unix.Close(at)
}

func TestError_NamesPathAndOperation(t *testing.T) {
	dir := build(t, "d/", "d/f = ")
	err := fsops.Remove(t.Context(), dir+"/d", fsops.Removal{})
	if err == nil || !strings.Contains(err.Error(), dir+"/d") || !strings.Contains(err.Error(), "remove") {
		t.Errorf("the error is %v", err)
	}
}
