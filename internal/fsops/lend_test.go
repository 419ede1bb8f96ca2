package fsops

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lendingWatcher returns a watcher that has lent the only instance of its reserve.
func lendingWatcher(t *testing.T) (w *Watcher, fd int) {
	t.Helper()
	w = NewWatcher(WatcherOptions{Watches: 1, AwaitedPaths: 1, Directories: 10, PendingBytes: 1 << 20})
	w.Keep(1)
	t.Cleanup(w.Close)
	if len(w.reserve) != 1 {
		t.Fatalf("the reserve has %d instances", len(w.reserve))
	}
	fd, w.reserve = w.reserve[0], nil
	return w, fd
}

// watchesOf counts the inotify watches of an instance.
func watchesOf(t *testing.T, fd int) int {
	t.Helper()
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(info), "inotify wd:")
}

func TestTakeBack_UsedInstance_IsEmptied(t *testing.T) {
	w, fd := lendingWatcher(t)
	dir := t.TempDir()
	for n := range 20 {
		sub := dir + "/" + strconv.Itoa(n)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.InotifyAddWatch(fd, sub, unix.IN_CREATE); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sub+"/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := watchesOf(t, fd); n != 20 {
		t.Fatalf("the instance has %d watches", n)
	}
	if err := unix.SetNonblock(fd, false); err != nil { // as the process that has it can
		t.Fatal(err)
	}
	w.takeBack(fd)
	if len(w.reserve) != 1 || w.reserve[0] != fd {
		t.Fatalf("the reserve is %v", w.reserve)
	}
	if n := watchesOf(t, fd); n != 0 {
		t.Errorf("the instance has %d watches", n)
	}
	if err := os.WriteFile(dir+"/0/other", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, make([]byte, 1024)); err != unix.EAGAIN {
		t.Errorf("the instance reports %d bytes, %v", n, err)
	}
}

func TestTakeBack_FullReserve_ClosesInstance(t *testing.T) {
	w, fd := lendingWatcher(t)
	other, err := openInstance()
	if err != nil {
		t.Fatal(err)
	}
	w.takeBack(fd)
	w.takeBack(other)
	if _, err := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the instance is open: %v", err)
	}
	w.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the reserve is open after Close: %v", err)
	}
}

func TestLend_KeepsHalfOfReserveForOthers(t *testing.T) {
	w := NewWatcher(WatcherOptions{})
	w.Keep(8)
	t.Cleanup(w.Close)
	take := func(owner string) bool {
		fd, ok := w.takeReserved(owner)
		if ok {
			t.Cleanup(func() { w.takeBack(fd) })
		}
		return ok
	}
	for n := range 5 {
		if got, want := take("a"), n < 4; got != want {
			t.Errorf("%d: the first owner gets one more: %v", n, got)
		}
	}
	for _, owner := range []string{"b", "c", "d", "e"} {
		if !take(owner) {
			t.Errorf("owner %s gets none", owner)
		}
		if take(owner) {
			t.Errorf("owner %s gets two", owner)
		}
	}
}

func TestAdopt_BeforeFirstWatch_UsesInstance(t *testing.T) {
	lending := NewWatcher(WatcherOptions{Watches: 1, AwaitedPaths: 1, Directories: 10, PendingBytes: 1 << 20})
	fd, giveBack, err := lending.Lend("")
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
	w := NewWatcher(lending.options)
	defer w.Close()
	for range 2 { // the second is closed
		duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Adopt(duplicate)
	}
	dir := t.TempDir()
	for range 2 { // the instance is kept between watches
		wait, err := w.AwaitPaths("", []string{dir + "/file"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if watchesOf(t, fd) == 0 {
			t.Error("the lent instance has no watches")
		}
		if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, context.DeadlineExceeded)
		if _, err := wait.Next(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		wait.Close()
		if err := os.Remove(dir + "/file"); err != nil {
			t.Fatal(err)
		}
	}
}
