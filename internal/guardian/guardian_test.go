//go:build linux

package guardian

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("killed-in-a-fork", func([]string) int {
		watch, err := Guarded()
		if err == nil && watch == nil {
			_, _ = Run(Options{Cgroups: "off"})
			return 0
		}
		// Like a child between fork and setsid.
		child := exec.Command("/bin/sleep", "1000")
		if err != nil || child.Start() != nil {
			return 1
		}
		fmt.Println(child.Process.Pid)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		return 1
	})
}

func TestMain(m *testing.M) {
	testproc.Main()
	os.Exit(m.Run())
}

func alive(pid int) bool {
	p, err := procfs.ReadStat(pid)
	return err == nil && !p.Dead
}

func poll(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}

func TestRun_KillsChildBeforeSetsid(t *testing.T) {
	argv := testproc.Argv("killed-in-a-fork")
	text, err := exec.Command(argv[0], argv[1:]...).Output()
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid == 0 {
		t.Fatalf("%q, %v", text, err)
	}
	if alive(pid) {
		t.Error("the child is alive")
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// deadLeader returns a leader that has ended and is not reaped, and a process that is left in its
// group.
func deadLeader(t *testing.T, attr syscall.SysProcAttr) (leader, left int) {
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
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	leader = cmd.Process.Pid
	poll(func() bool { p, _ := procfs.ReadStat(leader); return p.Dead })
	left, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return leader, left
}

// The group is killed atomically, without time to fork.
func TestReapDead_KillsGroupOfZombie(t *testing.T) {
	leader, left := deadLeader(t, syscall.SysProcAttr{Setsid: true})
	stat, err := procfs.ReadStat(leader)
	if err != nil || !reapDead([]procfs.Stat{stat}) {
		t.Error("it did not reap the leader")
	}
	poll(func() bool { return !alive(left) })
	leader, left = deadLeader(t, syscall.SysProcAttr{Setpgid: true}) // in the session of this program
	killGroupOfZombie(leader)
	if !alive(left) {
		t.Error("it killed a group of its own session")
	}
}
