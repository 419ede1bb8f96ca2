package fsops_test

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

func TestRename(t *testing.T) {
	lines := []string{"f = one", "g = two", "d/", "d/x = in d", "empty/", "l -> nowhere", "fifo |"}
	for _, tt := range []struct {
		from, to  string
		noReplace bool
		kind      fsops.Kind
		errno     syscall.Errno
		change    map[string]string // changes of the tree, by the old entry
	}{
		{from: "f", to: "h", change: map[string]string{"f mode=644 = one": "h mode=644 = one"}},
		{from: "f", to: "g", change: map[string]string{"f mode=644 = one": "g mode=644 = one", "g mode=644 = two": ""}},
		{from: "f", to: "l", change: map[string]string{"f mode=644 = one": "l mode=644 = one", "l -> nowhere": ""}},
		{from: "l", to: "f", change: map[string]string{"l -> nowhere": "f -> nowhere", "f mode=644 = one": ""}},
		{from: "fifo", to: "d/p", noReplace: true, change: map[string]string{"fifo |": "d/p |"}},
		{from: "d", to: "empty", change: map[string]string{"d/ mode=755": "", "d/x mode=644 = in d": "empty/x mode=644 = in d"}},
		{from: "f", to: "f"},
		{from: "f", to: "g", noReplace: true, kind: fsops.AlreadyExists, errno: unix.EEXIST},
		{from: "empty", to: "d", kind: fsops.DirectoryNotEmpty, errno: unix.ENOTEMPTY},
		{from: "d", to: "f", kind: fsops.NotADirectory, errno: unix.ENOTDIR},
		{from: "f", to: "d", kind: fsops.IsADirectory, errno: unix.EISDIR},
		{from: "none", to: "h", kind: fsops.NotFound, errno: unix.ENOENT},
		{from: "f", to: "none/h", kind: fsops.NotFound, errno: unix.ENOENT},
		{from: "f/x", to: "h", kind: fsops.NotADirectory, errno: unix.ENOTDIR},
		{from: "d", to: "d/y", kind: fsops.Failed, errno: unix.EINVAL},
	} {
		dir := build(t, lines...)
		want := tree(t, dir)
		for was, is := range tt.change {
			for i := range want {
				if want[i] == was {
					want[i] = is
				}
			}
		}
		err := fsops.Rename(dir+"/"+tt.from, dir+"/"+tt.to, tt.noReplace)
		wantError(t, tt.from+" to "+tt.to, err, tt.kind, tt.errno)
		wantTree(t, dir, without(want, "")...)
	}
	dir := t.TempDir()
	wantError(t, "a relative source", fsops.Rename("f", dir+"/g", false), fsops.InvalidPath, 0)
	wantError(t, "a relative destination", fsops.Rename(dir+"/f", "g", false), fsops.InvalidPath, 0)
}

func without(lines []string, line string) []string {
	var left []string
	for _, l := range lines {
		if l != line {
			left = append(left, l)
		}
	}
	return left
}

func TestCreateSymlink(t *testing.T) {
	dir := build(t, "f = kept")
	for target, name := range map[string]string{"f": "l", "/nowhere/at all": "a", strings.Repeat("x", 4095): "long"} {
		if err := fsops.CreateSymlink(dir+"/"+name, target); err != nil {
			t.Error(err)
		}
		if _, got, err := fsops.Lstat(dir + "/" + name); err != nil || got != target {
			t.Errorf("the target of the link is %q: %v", got, err)
		}
	}
	wantError(t, "an existing file", fsops.CreateSymlink(dir+"/f", "l"), fsops.AlreadyExists, unix.EEXIST)
	wantError(t, "an existing link", fsops.CreateSymlink(dir+"/l", "f"), fsops.AlreadyExists, unix.EEXIST)
	wantError(t, "no parent", fsops.CreateSymlink(dir+"/none/l", "f"), fsops.NotFound, unix.ENOENT)
	wantError(t, "a long target", fsops.CreateSymlink(dir+"/longer", strings.Repeat("x", 4096)), fsops.Failed, unix.ENAMETOOLONG)
}

func TestCreateDirectory_Permissions(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		fsops.CreateDirectory(dir+"/a", false, new(uint32(0o750))),
		fsops.CreateDirectory(dir+"/p/b", true, new(uint32(0o777))),
		fsops.CreateDirectory(dir+"/p/b", true, new(uint32(0o700))), // exists
		fsops.CreateDirectory(dir+"/none", false, new(uint32(0))),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	wantTree(t, dir, "a/ mode=750", "p/ mode=755", "p/b/ mode=777", "none/ mode=0")
	wantError(t, "an existing file", fsops.CreateDirectory(dir+"/a", false, new(uint32(0o700))), fsops.AlreadyExists, unix.EEXIST)
	wantError(t, "no parent", fsops.CreateDirectory(dir+"/no/d", false, new(uint32(0o700))), fsops.NotFound, unix.ENOENT)
	if m, err := fsops.Stat(dir + "/a"); err != nil || m.Mode != 0o750 {
		t.Errorf("the mode is %o: %v", m.Mode, err)
	}
}
