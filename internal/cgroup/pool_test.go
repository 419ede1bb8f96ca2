//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
)

const (
	v2Mount     = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	v2Alone     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount     = "32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	v2Part      = "50 31 0:38 /docker/abc /mnt/with\\040blank rw - cgroup2 cgroup2 rw\n"
	noSeparator = "50 31 0:38 / /sys/fs/cgroup cgroup2\n"
)

func TestLocateOwn(t *testing.T) {
	for _, test := range []struct {
		mounts, own string
		want        location
	}{
		{v1Mount + v2Mount, "/", location{"/sys/fs/cgroup/unified", "/"}},
		{v2Alone, "/user.slice/x", location{"/sys/fs/cgroup/user.slice/x", "/user.slice/x"}},
		{v2Part, "/docker/abc", location{"/mnt/with blank", "/docker/abc"}},
		{v2Part, "/docker/abc/d", location{"/mnt/with blank/d", "/docker/abc/d"}},
		{v2Part + v2Mount, "/docker/abcd", location{"/sys/fs/cgroup/unified/docker/abcd", "/docker/abcd"}},
		{v2Part, "/docker", location{}},
		{v2Mount, "/../x", location{}},
		{v2Mount, "", location{}},
		{v1Mount + noSeparator, "/", location{}},
	} {
		got, err := locateOwn([]byte(test.mounts), test.own)
		if got != test.want || (err != nil) != (test.want == location{}) {
			t.Errorf("%q in %q: %+v, %v", test.own, test.mounts, got, err)
		}
	}
	if got := procfs.ParseCgroup([]byte("4:memory:/a\n1:name=x:/\n0::/b c\n")); got != "/b c" {
		t.Errorf("%q", got)
	}
	if got := procfs.ParseCgroup([]byte("4:memory:/a\n")); got != "" {
		t.Errorf("%q", got)
	}
}

func TestLocateDir(t *testing.T) {
	dir := t.TempDir()
	mounts := strings.ReplaceAll(v2Mount, "/sys/fs/cgroup/unified", dir)
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := locateDir([]byte(mounts), dir+"/a/b")
	if want := (location{dir + "/a/b", "/a/b"}); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{"/", dir + "/missing"} {
		if got, err := locateDir([]byte(mounts), wrong); err == nil {
			t.Errorf("%s is %+v", wrong, got)
		}
	}
}

func TestOpen_Off_ReturnsNil(t *testing.T) {
	for _, where := range []string{"", "off"} {
		if c, err := Open(where); c != nil || err != nil {
			t.Errorf("%q: %v, %v", where, c, err)
		}
		if err := RemoveStale(where); err != nil {
			t.Errorf("%q: %v", where, err)
		}
	}
	for _, where := range []string{"/", "/missing", t.TempDir()} {
		if _, err := Open(where); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%q: %v", where, err)
		}
	}
}

func TestIsPoolName(t *testing.T) {
	for name, want := range map[string]bool{
		"execwire-server-0123456789abcdef": true, "execwire-server-": false, "execwire-server-0123456789abcdeg": false,
		"execwire-server-0123456789abcdef0": false, "execwire-server-0123456789abcde": false, "execwire-0123456789abcdef": false,
		"0123456789abcdef": false, "execwire": false,
	} {
		if isPoolName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// openPool opens a pool of control groups.
func openPool(t *testing.T) *Pool {
	t.Helper()
	p, err := Open("auto")
	if err != nil || p == nil {
		t.Fatalf("no writable cgroup v2 tree: run the tests as root on a system with one: %v", err)
	}
	return p
}

// parentOfTest creates a directory for pools that no other test or server cleans up.
func parentOfTest(t *testing.T) string {
	t.Helper()
	shared := openPool(t)
	dir := filepath.Join(filepath.Dir(shared.Dir()), fmt.Sprintf("execwire-test-%d-%s", os.Getpid(), t.Name()))
	if err := errors.Join(shared.Close(), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// directories lists the control groups of a pool.
func directories(t *testing.T, c *Pool) []string {
	t.Helper()
	return children(c.Dir())
}

func TestPool_Frozen_IsNotReused(t *testing.T) {
	c := openPool(t)
	defer c.Close()
	g := c.Get()
	if !g.isReusable() {
		t.Error("a fresh one is not usable")
	}
	write(t, g.dir()+"/cgroup.freeze", "1")
	if g.Populated() || g.isReusable() {
		t.Error("a frozen one is used again")
	}
	g.Release()
	if left := directories(t, c); len(left) > 0 {
		t.Errorf("the remaining directories are %v", left)
	}
}

// A program that can only read the directory can hold neither lock that would keep a stale
// directory from being removed or a server from starting.
func TestPool_ReadLocksOfOtherPrograms_DoNotBlock(t *testing.T) {
	c := openPool(t)
	dir, err := os.Open(c.location.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale("auto"); err != nil {
		t.Error(err)
	}
	if g := c.Get(); g == nil {
		t.Fatal("the directory of a living server was removed")
	}
	lock, err := os.Open(filepath.Join(c.location.dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := c.lock.Close(); err != nil { // as the kernel does when the server ends
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale("auto"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.location.dir); !os.IsNotExist(err) {
		t.Errorf("the directory of a dead server remains: %v", err)
	}
}

// A directory that is not locked yet may be removed only while it is empty. Its server then creates
// another one.
func TestNewPool_RacesWithRemoveStale(t *testing.T) {
	parent, err := findLocation(parentOfTest(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		for {
			select {
			case <-done:
				return
			default:
				_ = removeStale(parent)
			}
		}
	}()
	for range 50 {
		c, err := newPool(parent)
		if err != nil {
			t.Error(err)
			break
		}
		g := c.Get()
		if g == nil {
			t.Error("the directory of a server was removed")
			break
		}
		if _, err := os.Stat(filepath.Join(c.location.dir, g.name)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	<-removed
}

func TestKillMembers(t *testing.T) {
	c := openPool(t)
	g := c.Get()
	if err := os.Mkdir(g.dir()+"/below", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{g.dir(), g.dir() + "/below"} {
		script := "echo $$ > " + dir + "/cgroup.procs && exec sleep 1000"
		cmd := exec.Command("/bin/sh", "-c", script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for len(members(dir)) == 0 {
			time.Sleep(time.Millisecond)
		}
		defer func() {
			if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
				t.Error(err)
			}
		}()
	}
	for g.Populated() {
		killMembers(g.dir())
	}
	g.Release()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestLimitProcesses_EnablesController(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "execwire-1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := limitProcesses(dir, "100"); err == nil {
		t.Error("a tree without controllers is no error")
	}
	control := write(t, filepath.Join(parent, "cgroup.subtree_control"), "")
	if err := limitProcesses(dir, "100"); err == nil {
		t.Error("a limit that did not appear is no error")
	}
	if text, _ := os.ReadFile(control); string(text) != "+pids" {
		t.Errorf("the parent passes %q on, want +pids", text)
	}
	file := write(t, filepath.Join(dir, "pids.max"), "max")
	if err := limitProcesses(dir, "100"); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); string(text) != "100" {
		t.Errorf("pids.max is %q, want 100", text)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
