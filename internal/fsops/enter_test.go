package fsops

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever can write to a tree that is removed can put a link in the place of a
// directory just before it is entered, and cannot have another tree removed.
func TestALinkIsNotEntered(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Mkdir(dir+"/kept", 0o755), os.WriteFile(dir+"/kept/f", nil, 0o644), os.Symlink("kept", dir+"/l")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	parent, err := openPath(dir, openDirPath, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.release()
	removal := &tree{ctx: t.Context(), path: dir}
	defer removal.close()
	if err := removal.enter(parent, "l", dir+"/l"); err != unix.ENOTDIR {
		t.Errorf("the link was entered: %v", err)
	}
}

// The way back from a directory that was moved meanwhile leads elsewhere, where
// nothing may be removed.
func TestAMovedDirectoryIsNotLeftUpwards(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"/top", "/top/d", "/elsewhere", "/elsewhere/d"} {
		if err := os.Mkdir(dir+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := openPath(dir, openDirPath, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.release()
	removal := &tree{ctx: t.Context(), path: dir + "/top"}
	defer removal.close()
	for _, err := range []error{
		removal.enter(parent, "top", dir+"/top"),
		removal.remove("d"),
		os.Remove(dir + "/elsewhere/d"),
		os.Rename(dir+"/top/d", dir+"/elsewhere/moved"),
		os.Mkdir(dir+"/elsewhere/d", 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := removal.empty(); KindOf(err) != Failed {
		t.Errorf("the removal went on: %v", err)
	}
	for _, name := range []string{"/elsewhere/d", "/elsewhere/moved", "/top"} {
		if _, err := os.Stat(dir + name); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}
