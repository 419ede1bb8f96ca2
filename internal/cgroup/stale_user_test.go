//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The groups of a dead server are removed only by a server of the same user. For another user they
// are no error.
func TestRemoveStale_GroupOfAnotherUser_IsLeftAlone(t *testing.T) {
	location, err := findLocation("")
	if err != nil {
		t.Fatal(err)
	}
	if location.dir, err = os.MkdirTemp(location.dir, "stale-"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(location.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(location.dir, prefix+"0123456789abcdef")
	if err := os.MkdirAll(filepath.Join(leftover, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(location.dir); err != nil {
			t.Error(err)
		}
	}()
	removed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(61131); err != nil {
			removed <- err
			return
		}
		removed <- removeStale(location)
	}()
	if err := <-removed; err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := os.Stat(filepath.Join(leftover, "1")); err != nil {
		t.Errorf("the group was removed: %v", err)
	}
	if err := removeStale(location); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("its own user did not remove it")
	}
}
