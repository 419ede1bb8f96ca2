package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("killed-in-a-fork", func([]string) int {
		watch, err := Guarded()
		if err == nil && watch == nil {
			_, _ = Guard(Guarding{Cgroups: "off"})
			return 0
		}
		// As a child is between the fork and setsid.
		child := exec.Command("/bin/sleep", "1000")
		if err != nil || child.Start() != nil {
			return 1
		}
		fmt.Println(child.Process.Pid)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		return 1
	})
}

func TestAGuardianEndsWhatHadNoSessionYet(t *testing.T) {
	argv := testproc.Argv("killed-in-a-fork")
	said, err := exec.Command(argv[0], argv[1:]...).Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil || pid == 0 {
		t.Fatalf("%q, %v", said, err)
	}
	if alive(pid) {
		t.Error("the child is alive")
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// bereaved is a leader that has ended, unreaped, and somebody who is left in its group.
func bereaved(t *testing.T, attr syscall.SysProcAttr) (leader, left int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 >/dev/null & echo $!")
	cmd.SysProcAttr = &attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait()
		if alive(left) {
			_ = unix.Kill(left, unix.SIGKILL)
		}
	})
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	leader = cmd.Process.Pid
	poll(t, "the leader's end", func() bool { p, _ := readStat(leader); return p.dead })
	left, err = strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil {
		t.Fatal(err)
	}
	return leader, left
}

// Whoever has ended takes its group along, which gets no time to fork.
func TestAGuardianEndsGroupsAtOnce(t *testing.T) {
	leader, left := bereaved(t, syscall.SysProcAttr{Setsid: true})
	stat, err := readStat(leader)
	if err != nil || !reap([]procStat{stat}) {
		t.Error("it did not reap the leader")
	}
	poll(t, "the end of the group", func() bool { return !alive(left) })
	leader, left = bereaved(t, syscall.SysProcAttr{Setpgid: true}) // in our own session
	killGroupOf(leader)
	if !alive(left) {
		t.Error("it killed a group of our own session")
	}
}

func TestProcOfAnotherNamespaceIsNotBelieved(t *testing.T) {
	if err := checkProc("/proc"); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := checkProc(dir); err == nil {
		t.Error("an empty directory was taken for /proc")
	}
	if err := os.Symlink(strconv.Itoa(os.Getpid()+1), filepath.Join(dir, "self")); err != nil {
		t.Fatal(err)
	}
	if err := checkProc(dir); err == nil || !strings.Contains(err.Error(), "another pid namespace") {
		t.Errorf("%v", err)
	}
}

// A leader that somebody else has reaped is not looked for by its number, which may be another's.
func TestALostLeaderIsNobody(t *testing.T) {
	s := newSupervisor(t, Config{})
	p, err := s.bear(t.Context(), shell("sleep 1000 & exit 0"), "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(p.pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	s.add(p)
	p.begin()
	wait(t, "exited", p.Exited())
	children.mu.Lock()
	if !p.kin.reaped || children.leaders[p.pid] {
		t.Error("it counts as a zombie that reserves its number")
	}
	children.mu.Unlock()
	if result := terminate(t, p, Termination{}); result.Exit.Cause != CauseLost || result.Method != MethodProcessGroup {
		t.Errorf("%+v", result)
	}
	exit(t, p)
}
