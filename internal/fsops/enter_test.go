package fsops

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A user with write access to a tree that is being removed can replace a
// directory by a link just before it is entered. That must not remove another
// tree.
func TestRemove_DirectoryReplacedByLink_IsNotEntered(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Mkdir(dir+"/kept", 0o755), os.WriteFile(dir+"/kept/f", nil, 0o644), os.Symlink("kept", dir+"/l")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	parent, err := openPath(dir)
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

// The parent of a directory that was moved meanwhile is outside of the tree.
// Nothing may be removed there.
func TestRemove_MovedDirectory_LeavesNewParentAlone(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"/top", "/top/d", "/elsewhere", "/elsewhere/d"} {
		if err := os.Mkdir(dir+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := openPath(dir)
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
		t.Errorf("the removal continued: %v", err)
	}
	for _, name := range []string{"/elsewhere/d", "/elsewhere/moved", "/top"} {
		if _, err := os.Stat(dir + name); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
}
