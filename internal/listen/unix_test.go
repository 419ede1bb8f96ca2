package listen_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/listen"
)

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "s") }

// leaveStale leaves a socket as a killed server does.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// expect checks the kind of the error and its text.
func expect(t *testing.T, err error, kind listen.Kind, texts ...string) {
	t.Helper()
	var typed *listen.Error
	if !errors.As(err, &typed) || typed.Kind != kind {
		t.Fatalf("error = %v, want an Error of kind %v", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the message %q does not contain %q", err, text)
		}
	}
}

// names lists a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestUnix(t *testing.T) {
	path := socketPath(t)
	l := mustListen(t, "unix://"+path)
	if l.URL().String() != "unix://"+path || l.Addr().String() != path {
		t.Errorf("URL = %v, Addr = %v, want %s", l.URL(), l.Addr(), path)
	}
	roundTrip(t, l)
	if got := names(t, filepath.Dir(path)); got != "s" {
		t.Errorf("the directory has %q, want only the socket", got)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Errorf("Close twice = %v, want nil", err)
	}
	if got := names(t, filepath.Dir(path)); got != "" {
		t.Errorf("after Close the directory has %q, want nothing", got)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v, want %v", err, net.ErrClosed)
	}
}

// inotify on the directory shows whether the socket is ever accessible to others, with any
// umask.
func TestUnix_IsAlwaysPrivate(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := socketPath(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	seen := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			seen++
			if info.Mode() != fs.ModeSocket|0o600 {
				t.Errorf("the socket was seen as %v, want %v", info.Mode(), fs.ModeSocket|0o600)
				return
			}
		}
	})
	for range 200 {
		l, err := tryListen(t, "unix://"+path)
		if err != nil {
			t.Error(err)
			break
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("the socket is %v, %v, want %v", info.Mode(), err, fs.ModeSocket|0o600)
		}
		_ = l.Close()
	}
	close(stop)
	wg.Wait()
	t.Logf("the watcher saw the socket %d times", seen)
}

func TestUnix_StaleSocket_IsReplaced(t *testing.T) {
	path := socketPath(t)
	leaveStale(t, path)
	roundTrip(t, mustListen(t, "unix://"+path))
	if got := names(t, filepath.Dir(path)); got != "s" {
		t.Errorf("the directory has %q, want only the socket", got)
	}
}

func TestUnix_InUse(t *testing.T) {
	path := socketPath(t)
	l := mustListen(t, "unix://"+path)
	_, err := tryListen(t, "unix://"+path)
	expect(t, err, listen.KindInUse, path, "already in use", "stop the other server")
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error = %v, want it to be %v", err, syscall.EADDRINUSE)
	}
	roundTrip(t, l)
}

// Two servers replace a stale socket at the same time.
func TestUnix_StaleSocket_Race(t *testing.T) {
	for range 50 {
		path := socketPath(t)
		leaveStale(t, path)
		var wg sync.WaitGroup
		var listeners [4]*dispatched
		var errs [len(listeners)]error
		for i := range listeners {
			wg.Go(func() { listeners[i], errs[i] = tryListen(t, "unix://"+path) })
		}
		wg.Wait()
		var winners []listen.Listener
		for i, l := range listeners {
			if errs[i] == nil {
				winners = append(winners, l)
				continue
			}
			expect(t, errs[i], listen.KindInUse)
		}
		if len(winners) != 1 {
			t.Fatalf("%d servers won, want exactly one", len(winners))
		}
		if conn, err := net.Dial("unix", path); err != nil {
			t.Errorf("failed to reach the winner: %v", err)
		} else {
			_ = conn.Close()
		}
		_ = winners[0].Close()
	}
}

func TestUnix_OtherFile_IsNotRemoved(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"regular file":  func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"special file":  func(path string) error { return unix.Mkfifo(path, 0o600) },
		"symbolic link": func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			if err := create(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tryListen(t, "unix://"+path)
			expect(t, err, listen.KindPathOccupied, path, name, "choose another path")
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("the %s was removed: %v", name, err)
			}
			if got := names(t, filepath.Dir(path)); got != "s" {
				t.Errorf("the directory has %q, want nothing new", got)
			}
		})
	}
}

// A datagram socket accepts no connections, but is not a stale socket of a server.
func TestUnix_DatagramSocket_IsNotRemoved(t *testing.T) {
	path := socketPath(t)
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	_, err = tryListen(t, "unix://"+path)
	expect(t, err, listen.KindPathOccupied, "cannot determine")
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket was removed: %v", err)
	}
}

func TestUnix_Close_LeavesSuccessor(t *testing.T) {
	path := socketPath(t)
	first := mustListen(t, "unix://"+path)
	if err := os.Remove(path); err != nil { // simulates an eager cleanup
		t.Fatal(err)
	}
	second := mustListen(t, "unix://"+path)
	if err := first.Close(); err != nil {
		t.Errorf("Close of the first = %v", err)
	}
	roundTrip(t, second)
}

// The bound path of a socket contains a descriptor number that is reused. Close must not
// remove the file that the path names later.
func TestUnix_Close_IgnoresBoundName(t *testing.T) {
	l := mustListen(t, "unix://"+socketPath(t))
	other := t.TempDir()
	bystander := filepath.Join(other, "s")
	if err := os.WriteFile(bystander, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 32 { // takes all free numbers
		dir, err := os.Open(other)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dir.Close() }()
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, err := os.Lstat(bystander); err != nil {
		t.Errorf("a foreign file was removed: %v", err)
	}
}

func TestUnix_LongestPath(t *testing.T) {
	dir := t.TempDir()
	space := 107 - len(dir) - 1
	path := filepath.Join(dir, strings.Repeat("x", space))
	roundTrip(t, mustListen(t, "unix://"+path)) // no longer name is possible
}

func TestUnix_MissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	_, err := tryListen(t, "unix://"+dir+"/s")
	expect(t, err, listen.KindSystem, "create the directory "+dir)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v, want it to be %v", err, fs.ErrNotExist)
	}
}

func TestUnix_Lock_TimesOutWithContext(t *testing.T) {
	path := socketPath(t)
	lock := holdLock(t, listen.LockName(path), os.O_WRONLY|os.O_CREATE)
	why := errors.New("out of patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := listen.Listen(ctx, listen.URL{Scheme: listen.SchemeUnix, Path: path}, listen.Options{})
	expect(t, err, listen.KindSystem, "locked")
	if !errors.Is(err, why) {
		t.Errorf("error = %v, want it to wrap %v", err, why)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, mustListen(t, "unix://"+path))
}

// holdLock locks a file until the test ends.
func holdLock(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	file, err := os.OpenFile(name, flags, 0o200)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return file
}

// Locks of read-only programs or other users do not keep servers from starting and stopping.
func TestUnix_LocksOfReaders_AreIgnored(t *testing.T) {
	path := socketPath(t)
	holdLock(t, filepath.Dir(path), os.O_RDONLY)
	first := mustListen(t, "unix://"+path)
	roundTrip(t, first)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	leaveStale(t, path)
	theirs := holdLock(t, listen.LockName(path), os.O_WRONLY|os.O_CREATE)
	if err := theirs.Chown(65534, 65534); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, mustListen(t, "unix://"+path))
}

// The lock file cannot be opened for reading, so that a confined read-only
// program cannot lock it.
func TestUnix_LockFile_IsNotReadable(t *testing.T) {
	path := socketPath(t)
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := make(chan fs.FileMode, 1)
	go func() {
		defer close(held)
		for ctx.Err() == nil {
			if info, err := os.Lstat(listen.LockName(path)); err == nil {
				held <- info.Mode()
				return
			}
		}
	}()
	for len(held) == 0 {
		if err := mustListen(t, "unix://"+path).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if mode := <-held; mode != 0o200 {
		t.Errorf("its mode is %v", mode)
	}
	if left := names(t, filepath.Dir(path)); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// Another process of this user can hold the lock forever.
func TestUnix_Lock_TimesOut(t *testing.T) {
	path := socketPath(t)
	holdLock(t, listen.LockName(path), os.O_WRONLY|os.O_CREATE)
	synctest.Test(t, func(t *testing.T) {
		_, err := listen.Listen(t.Context(), listen.URL{Scheme: listen.SchemeUnix, Path: path}, listen.Options{})
		expect(t, err, listen.KindSystem, "has held its lock for 10s")
		expect(t, err, listen.KindSystem, filepath.Dir(path))
		expect(t, err, listen.KindSystem, "/proc/locks")
	})
}
