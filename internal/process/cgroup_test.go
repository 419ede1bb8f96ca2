package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/leakcheck"
)

const (
	v2Mount     = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	v2Alone     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount     = "32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	v2Part      = "50 31 0:38 /docker/abc /mnt/with\\040blank rw - cgroup2 cgroup2 rw\n"
	noSeparator = "50 31 0:38 / /sys/fs/cgroup cgroup2\n"
)

func TestTheOwnControlGroupIsFound(t *testing.T) {
	for _, test := range []struct {
		mounts, own string
		want        cgroupPlace
	}{
		{v1Mount + v2Mount, "/", cgroupPlace{"/sys/fs/cgroup/unified", "/"}},
		{v2Alone, "/user.slice/x", cgroupPlace{"/sys/fs/cgroup/user.slice/x", "/user.slice/x"}},
		{v2Part, "/docker/abc", cgroupPlace{"/mnt/with blank", "/docker/abc"}},
		{v2Part, "/docker/abc/d", cgroupPlace{"/mnt/with blank/d", "/docker/abc/d"}},
		{v2Part + v2Mount, "/docker/abcd", cgroupPlace{"/sys/fs/cgroup/unified/docker/abcd", "/docker/abcd"}},
		{v2Part, "/docker", cgroupPlace{}},
		{v2Mount, "/../x", cgroupPlace{}},
		{v2Mount, "", cgroupPlace{}},
		{v1Mount + noSeparator, "/", cgroupPlace{}},
	} {
		got, err := ownCgroup([]byte(test.mounts), test.own)
		if got != test.want || (err != nil) != (test.want == cgroupPlace{}) {
			t.Errorf("%q in %q: %+v, %v", test.own, test.mounts, got, err)
		}
	}
	if got := parseCgroup([]byte("4:memory:/a\n1:name=x:/\n0::/b c\n")); got != "/b c" {
		t.Errorf("%q", got)
	}
	if got := parseCgroup([]byte("4:memory:/a\n")); got != "" {
		t.Errorf("%q", got)
	}
}

func TestADirectoryIsLocatedInItsTree(t *testing.T) {
	dir := t.TempDir()
	mounts := strings.ReplaceAll(v2Mount, "/sys/fs/cgroup/unified", dir)
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := locateCgroup([]byte(mounts), dir+"/a/b")
	if want := (cgroupPlace{dir + "/a/b", "/a/b"}); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{"/", dir + "/missing"} {
		if got, err := locateCgroup([]byte(mounts), wrong); err == nil {
			t.Errorf("%s is %+v", wrong, got)
		}
	}
}

func TestNoControlGroupsAreUsedUnlessAskedFor(t *testing.T) {
	for _, where := range []string{"", "off"} {
		if c, err := OpenCgroups(where); c != nil || err != nil {
			t.Errorf("%q: %v, %v", where, c, err)
		}
		if err := SweepCgroups(where); err != nil {
			t.Errorf("%q: %v", where, err)
		}
	}
	for _, where := range []string{"/", "/missing", t.TempDir()} {
		if _, err := OpenCgroups(where); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%q: %v", where, err)
		}
	}
	if method := newSupervisor(t, Config{}).KillMethod(); method != MethodDescendants {
		t.Errorf("without them the strongest method is %v", method)
	}
}

// directories lists those of control groups that a pool has.
func directories(t *testing.T, c *Cgroups) []string {
	t.Helper()
	var names []string
	for _, dir := range cgroupChildren(c.place.dir) {
		names = append(names, filepath.Base(dir))
	}
	return names
}

func TestControlGroupsAreUsedAgainAndRemovedInTheEnd(t *testing.T) {
	leakcheck.Check(t)
	c := withCgroups(t)
	s := NewSupervisor(Config{Cgroups: c})
	if s.KillMethod() != MethodCgroup {
		t.Errorf("the strongest method is %v", s.KillMethod())
	}
	for range 20 {
		p, err := s.Start(testContext(t), shell("cat /proc/self/cgroup"))
		if err != nil {
			t.Fatal(err)
		}
		heard := listen(t, p).all()
		exit(t, p)
		if got, want := parseCgroup([]byte(heard.stdout)), c.place.name+"/1"; got != want {
			t.Errorf("it ran in %q, want %q", got, want)
		}
	}
	var all sync.WaitGroup
	for range maxFreeCgroups + 20 {
		all.Go(func() {
			p, err := s.Start(testContext(t), shell("read x; exit 0"))
			if err != nil {
				t.Error(err)
				return
			}
			exit(t, p)
		})
	}
	all.Wait()
	if got := len(directories(t, c)); got > maxFreeCgroups {
		t.Errorf("%d are kept", got)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.place.dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", c.place.dir, err)
	}
}

func TestAFrozenControlGroupIsNotUsedAgain(t *testing.T) {
	c := withCgroups(t)
	defer c.Close()
	g := c.take()
	if !g.reusable() {
		t.Error("a fresh one is not usable")
	}
	write(t, c.place.dir+"/"+g.name+"/cgroup.freeze", "1", 0)
	if g.populated() || g.reusable() {
		t.Error("a frozen one is used again")
	}
	g.release()
	if left := directories(t, c); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestASpoiltControlGroupIsNotUsedAgain(t *testing.T) {
	for name, spoil := range map[string]string{
		"killed by us":    "exec sleep 1000",
		"killed by it":    "echo 1 > $DIR/cgroup.kill; sleep 1000",
		"another below":   "mkdir $DIR/below",
		"removed by it":   "echo $$ > $DIR/../../cgroup.procs; rmdir $DIR",
		"nothing, really": "exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			c := withCgroups(t)
			s := newSupervisor(t, Config{Cgroups: c})
			spec := shell(strings.ReplaceAll(spoil, "$DIR", c.place.dir+"/1"))
			p, err := s.Start(testContext(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			if name == "killed by us" {
				terminate(t, p, Termination{})
			}
			exit(t, p)
			for range 3 {
				if _, record := runOn(t, s, shell("exit 5")); record.Code != 5 {
					t.Errorf("the next one ended with %+v", record)
				}
			}
			if used := slices.Contains(directories(t, c), "1"); used != (name == "nothing, really") {
				t.Errorf("it is kept: %v", used)
			}
		})
	}
}

// runOn is run on a given supervisor.
func runOn(t *testing.T, s *Supervisor, spec Spec) (transcript, ExitRecord) {
	t.Helper()
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	heard := listen(t, p).all()
	return heard, exit(t, p)
}

func TestProcessesStartWithoutAControlGroupIfNeedBe(t *testing.T) {
	c := withCgroups(t)
	s := newSupervisor(t, Config{Cgroups: c, AdoptOrphans: true})
	if _, record := runOn(t, s, shell("exit 5")); record.Code != 5 {
		t.Fatalf("%+v", record)
	}
	if err := os.Remove(c.place.dir + "/1"); err != nil { // it is free
		t.Fatal(err)
	}
	p, err := s.Start(testContext(t), program("tree", "2"))
	if err != nil {
		t.Fatal(err)
	}
	if p.cgroup != nil {
		t.Error("it has a control group that is not there")
	}
	pids := childrenOf(t, p)
	if result := terminate(t, p, Termination{}); result.Method != MethodProcessGroup || !result.Verified {
		t.Errorf("%+v", result)
	}
	wantDead(t, pids)
	var refused *Error
	_, err = s.Start(testContext(t), Spec{Argv: []string{"/proc/self/mem"}, Cwd: "/"})
	if !errors.As(err, &refused) || refused.Kind != NotExecutable && refused.Kind != PermissionDenied {
		t.Errorf("%v", err)
	}
	if got := openControlGroups(t, c); got != 0 {
		t.Errorf("%d descriptors of control groups are open", got)
	}
}

// openControlGroups counts descriptors, but for the pool's own.
func openControlGroups(t *testing.T, c *Cgroups) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if strings.HasPrefix(target, c.place.dir+"/") && target != c.lock.Name() {
			n++
		}
	}
	return n
}

func TestAnOldKernelKillsThoseInTheControlGroupOneByOne(t *testing.T) {
	c := withCgroups(t)
	g := c.take()
	dir := filepath.Join(c.place.dir, g.name)
	h := newTribe(t, "daemon", "session")
	script := fmt.Sprintf("echo $$ > %s/cgroup.procs && mkdir %s/below && exec \"$@\"", dir, dir)
	h.spec.Argv = append([]string{"/bin/sh", "-c", script, "sh"}, h.spec.Argv...)
	s := newSupervisor(t, Config{})
	p := h.start(s)
	listen(t, p).until("ready")
	moved := h.alive()[1]
	write(t, dir+"/below/cgroup.procs", strconv.Itoa(moved.PID), 0)
	poll(t, "the end of all", func() bool {
		killCgroupMembers(dir)
		return !g.populated()
	})
	h.wantExtinct("after they were killed one by one")
	exit(t, p)
	g.release()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestARestartFindsACleanPlace(t *testing.T) {
	parent := cgroupsOfTest(t)    // a server that starts elsewhere meanwhile would clean up, too
	c, err := OpenCgroups(parent) // of a server that lives
	if err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(t, Config{Cgroups: c})
	p, err := s.Start(testContext(t), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	other := startOther(t, parent)
	foreign := filepath.Join(parent, fmt.Sprintf("%sof-test-%d", cgroupPrefix, os.Getpid()))
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(foreign)

	if err := SweepCgroups(parent); err != nil {
		t.Error(err)
	}
	if got := len(other.tribe.alive()); got != 3 || !alive(p.PID()) {
		t.Errorf("of a living server's three processes %d are left", got)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if got := len(other.tribe.alive()); got == 0 {
		t.Error("nobody outlived the server, so there is nothing to clean up")
	}
	fresh, err := OpenCgroups(parent)
	if err != nil {
		t.Fatal(err)
	}
	other.tribe.wantExtinct("after the next server's start")
	if _, err := os.Stat(other.place); !os.IsNotExist(err) {
		t.Errorf("the place of the server that is gone is left: %v", err)
	}
	if !alive(p.PID()) {
		t.Error("another server's process was killed")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a directory that is no server's: %v", err)
	}
	if err := fresh.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheRightNamesAreServers(t *testing.T) {
	for name, want := range map[string]bool{
		"execwire-server-0123456789abcdef": true, "execwire-server-": false, "execwire-server-0123456789abcdeg": false,
		"execwire-server-0123456789abcdef0": false, "execwire-server-0123456789abcde": false, "execwire-0123456789abcdef": false,
		"0123456789abcdef": false, "execwire": false,
	} {
		if isCgroupName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestCgroups_LocksOfOtherPrograms holds every lock that a program can have which may only read: it keeps no leftover
// from being removed, and no server from starting.
func TestCgroups_LocksOfOtherPrograms(t *testing.T) {
	c := withCgroups(t)
	dir, err := os.Open(c.place.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := SweepCgroups("auto"); err != nil {
		t.Error(err)
	}
	if g := c.take(); g == nil {
		t.Fatal("the place of a server that lives was removed")
	}
	lock, err := os.Open(filepath.Join(c.place.dir, cgroupLockFile))
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
	if err := SweepCgroups("auto"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.place.dir); !os.IsNotExist(err) {
		t.Errorf("the place of a server that is gone is left: %v", err)
	}
	if err := c.file.Close(); err != nil {
		t.Error(err)
	}
}

// TestCgroups_FreshDirectory is one that a server has made and not locked yet. It may be removed only as long as nothing
// is in it; its server then makes another one.
func TestCgroups_FreshDirectory(t *testing.T) {
	parent, err := findCgroups(cgroupsOfTest(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-done:
				return
			default:
				_ = sweepCgroups(parent)
			}
		}
	}()
	for range 50 {
		c, err := makeCgroups(parent)
		if err != nil {
			t.Error(err)
			break
		}
		g := c.take()
		if g == nil {
			t.Error("the directory of a server was removed")
			break
		}
		if _, err := os.Stat(filepath.Join(c.place.dir, g.name)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	<-swept
}
