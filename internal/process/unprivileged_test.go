package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("unprivileged-start", startUnprivileged) }

// startUnprivileged starts processes as an ordinary user whose own /proc directory belongs to root,
// as that of the server, and prints what they and their descendants have as oom_score_adj.
func startUnprivileged([]string) int {
	const nobody = 65534
	if os.Geteuid() == 0 {
		if syscall.Setgroups(nil) != nil || syscall.Setgid(nobody) != nil || syscall.Setuid(nobody) != nil {
			return 90
		}
	}
	if unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) != nil {
		return 91
	}
	s := NewSupervisor(Config{OOMScoreAdjust: 300, UserProcesses: 12345})
	t := &failing{}
	spec := shell(`sh -c 'read x; cat /proc/self/oom_score_adj; :'; read x; cat /proc/self/oom_score_adj`)
	spec.PipeStdin = true
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		fmt.Println(err)
		return 92
	}
	if err := p.WriteStdin(testContext(t), []byte("x\nx\n")); err != nil {
		return 93
	}
	fmt.Print(readLog(t, p).all().stdout)
	return 0
}

// The files in /proc of a server that is not dumpable belong to root.
func TestStart_UnprivilegedServerNotDumpable_ChildHasHigherOOMScore(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	argv := testproc.Argv("unprivileged-start")
	output, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if want := strings.Repeat(fmt.Sprintln(min(score+300, 1000)), 2); err != nil || string(output) != want {
		t.Errorf("processes have %q, %v; want %q", output, err, want)
	}
}
