package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/procfs"
)

// directories lists the control groups of a pool.
func directories(t *testing.T, c *cgroup.Pool) []string {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestCgroups_AreReusedAndRemovedByClose(t *testing.T) {
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
		output := readLog(t, p).all()
		waitClosed(t, p)
		if got, want := procfs.ParseCgroup([]byte(output.stdout)), filepath.Base(c.Dir())+"/1"; !strings.HasSuffix(got, want) {
			t.Errorf("it ran in %q, want %q", got, want)
		}
	}
	var all sync.WaitGroup
	for range cgroup.MaxFree + 20 {
		all.Go(func() {
			p, err := s.Start(testContext(t), shell("read x; exit 0"))
			if err != nil {
				t.Error(err)
				return
			}
			waitClosed(t, p)
		})
	}
	all.Wait()
	if got := len(directories(t, c)); got > cgroup.MaxFree {
		t.Errorf("%d are kept", got)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", c.Dir(), err)
	}
}

func TestCgroups_Dirty_IsNotReused(t *testing.T) {
	for name, script := range map[string]string{
		"killed by the supervisor": "exec sleep 1000",
		"killed by itself":         "echo 1 > $DIR/cgroup.kill; sleep 1000",
		"another below":            "mkdir $DIR/below",
		"removed by it":            "echo $$ > $DIR/../../cgroup.procs; rmdir $DIR",
		"nothing, really":          "exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			c := withCgroups(t)
			s := newSupervisor(t, Config{Cgroups: c})
			spec := shell(strings.ReplaceAll(script, "$DIR", c.Dir()+"/1"))
			p, err := s.Start(testContext(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			if name == "killed by the supervisor" {
				terminate(t, p, Termination{})
			}
			waitClosed(t, p)
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
	output := readLog(t, p).all()
	return output, waitClosed(t, p)
}

func TestStart_CgroupRemoved_StartsWithoutIt(t *testing.T) {
	c := withCgroups(t)
	s := newSupervisor(t, Config{Cgroups: c, AdoptOrphans: true})
	if _, record := runOn(t, s, shell("exit 5")); record.Code != 5 {
		t.Fatalf("%+v", record)
	}
	if err := os.Remove(c.Dir() + "/1"); err != nil { // it is free
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

// openControlGroups counts the open descriptors of control groups, without those of the pool
// itself.
func openControlGroups(t *testing.T, c *cgroup.Pool) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if strings.HasPrefix(target, c.Dir()+"/") && target != c.Dir()+"/cgroup.procs" {
			n++
		}
	}
	return n
}

func TestOpenCgroups_RemovesGroupsOfDeadServer(t *testing.T) {
	parent := cgroupsOfTest(t)    // a server that starts elsewhere meanwhile would clean up, too
	c, err := cgroup.Open(parent) // of a server that lives
	if err != nil {
		t.Fatal(err)
	}
	s := newSupervisor(t, Config{Cgroups: c})
	p, err := s.Start(testContext(t), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	other := startOtherServer(t, parent)
	unrelated := filepath.Join(parent, fmt.Sprintf("execwire-server-of-test-%d", os.Getpid()))
	if err := os.Mkdir(unrelated, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(unrelated)

	if err := cgroup.RemoveStale(parent); err != nil {
		t.Error(err)
	}
	if got := len(other.tree.alive()); got != 3 || !alive(p.PID()) {
		t.Errorf("of a living server's three processes %d are left", got)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if got := len(other.tree.alive()); got == 0 {
		t.Error("no process is left of the server, so there is nothing to clean up")
	}
	next, err := cgroup.Open(parent)
	if err != nil {
		t.Fatal(err)
	}
	other.tree.wantAllDead("after the next server's start")
	if _, err := os.Stat(other.cgroupDir); !os.IsNotExist(err) {
		t.Errorf("the directory of the dead server is left: %v", err)
	}
	if !alive(p.PID()) {
		t.Error("another server's process was killed")
	}
	if _, err := os.Stat(unrelated); err != nil {
		t.Errorf("a directory that is no server's: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
