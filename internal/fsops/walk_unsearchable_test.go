package fsops

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// entryNames collects the paths of a walk.
type entryNames struct {
	t     *testing.T
	paths []string
}

func (n *entryNames) Entries(entries []WalkEntry) error {
	for _, e := range entries {
		n.paths = append(n.paths, e.Path)
	}
	return nil
}

func (n *entryNames) Error(relative string, err *Error) error {
	n.t.Errorf("%q: %v", relative, err)
	return nil
}

func TestWalk_UnsearchableRoot_IsRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: only root can act as another user")
	}
	top, err := os.MkdirTemp("/tmp", "walk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	root := filepath.Join(top, "root")
	if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o744); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(65534); err != nil { // of this thread, and with it the privileges
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(0) }()
	names := &entryNames{t: t}
	if _, err := Walk(context.Background(), root, WalkOptions{MaxDirectories: 1, MaxEntries: 10}, names); err != nil {
		t.Fatal(err)
	}
	if len(names.paths) != 1 || names.paths[0] != "a" {
		t.Errorf("got %q", names.paths)
	}
}
