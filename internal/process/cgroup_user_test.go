package process

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// What a server of another user left is that user's to remove: it is no error, and stays.
func TestSweepCgroups_LeftoverOfAnotherUser_IsLeftAlone(t *testing.T) {
	place, err := findCgroups("")
	if err != nil {
		t.Fatal(err)
	}
	if place.dir, err = os.MkdirTemp(place.dir, "sweep-"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(place.dir, cgroupPrefix+"0123456789abcdef")
	if err := os.MkdirAll(filepath.Join(leftover, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := removeCgroup(place.dir); err != nil {
			t.Error(err)
		}
	}()
	swept := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if err := unix.Setfsuid(61131); err != nil {
			swept <- err
			return
		}
		swept <- sweepCgroups(place)
	}()
	if err := <-swept; err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := os.Stat(filepath.Join(leftover, "1")); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	if err := sweepCgroups(place); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("its own user has left it")
	}
}
