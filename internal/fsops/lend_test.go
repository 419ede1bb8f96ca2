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

// lender is a watcher that has lent the only instance of its reserve.
func lender(t *testing.T) (w *Watcher, fd int) {
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

// watchesOf counts what an instance watches.
func watchesOf(t *testing.T, fd int) int {
	t.Helper()
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(info), "inotify wd:")
}

func TestTakeBack_OfAnInstanceThatIsInUse_EmptiesIt(t *testing.T) {
	w, fd := lender(t)
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
		t.Fatalf("it watches %d directories", n)
	}
	if err := unix.SetNonblock(fd, false); err != nil { // as who has it can
		t.Fatal(err)
	}
	w.takeBack(fd)
	if len(w.reserve) != 1 || w.reserve[0] != fd {
		t.Fatalf("the reserve is %v", w.reserve)
	}
	if n := watchesOf(t, fd); n != 0 {
		t.Errorf("it watches %d directories", n)
	}
	if err := os.WriteFile(dir+"/0/other", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, make([]byte, 1024)); err != unix.EAGAIN {
		t.Errorf("it reports %d bytes, %v", n, err)
	}
}

func TestTakeBack_WithAFullReserve_ClosesTheInstance(t *testing.T) {
	w, fd := lender(t)
	other, err := openInstance()
	if err != nil {
		t.Fatal(err)
	}
	w.takeBack(fd)
	w.takeBack(other)
	if _, err := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("it is open: %v", err)
	}
	w.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the reserve is open after Close: %v", err)
	}
}

func TestLend_FromTheReserve_KeepsHalfForOthers(t *testing.T) {
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

func TestAdopt_BeforeTheFirstWatch_WatchesWithTheInstance(t *testing.T) {
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
	for range 2 { // it stays between watches
		wait, err := w.AwaitPaths("", []string{dir + "/file"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if watchesOf(t, fd) == 0 {
			t.Error("the lent instance watches nothing")
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
